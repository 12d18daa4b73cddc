"""The sentence that answers what an artifact is: its speed, its proof, its size and where it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.targets import parse_target
from pt2hub.domain.terminal import plain
from pt2hub.errors import UnknownTarget
from pt2hub.rendering.quantities import format_bytes, quantity
from pt2hub.rendering.sheets import measurement_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.verification_reports import VerificationReport
    from pt2hub.server.views.inspection import InspectionView, MetricView
    from pt2hub.wire.artifacts import ArtifactView, DamagedPart

_CAPABILITY = re.compile(r"sm([0-9]{1,2})([0-9])a?")
_MAX_RESULT = 40


@dataclass(frozen=True, slots=True)
class ArtifactAnswer:
    """The first sentence of an artifact's page, and its tone as in the component `answer`."""

    tone: str
    text: str


def answer_artifact(
    found: InspectionView, report: VerificationReport, damaged: Sequence[DamagedPart]
) -> ArtifactAnswer:
    """Return the first sentence of an artifact's page."""
    view = found.artifact
    facts = [_speed(found.latency, view), _proof(report), format_bytes(view.single_file_bytes)]
    text = ", ".join(facts)
    text = f"{text[:1].upper()}{text[1:]}; {_place(view)}."
    if any(item.is_needed for item in damaged):
        return ArtifactAnswer("bad", f"Damaged on the server: it cannot be pulled. {text}")
    if damaged:  # by resolution and by promotion checks, the artifact is intact
        return ArtifactAnswer(
            "warn", f"{text} It can be pulled, but a document about it is damaged on the server."
        )
    return ArtifactAnswer("good" if report.result == "passed" else "warn", text)


def _speed(latency: MetricView | None, view: ArtifactView) -> str:
    if latency is not None:
        batch = f" at batch {latency.batch}" if latency.batch else ""
        return f"{quantity(latency.value, latency.unit)}{batch}"
    state = view.measurement.state if view.measurement else "not_measured"
    return "latency not measured" if state == "measured" else measurement_state(state)


def _proof(report: VerificationReport) -> str:
    if report.result == "passed":
        return "verified against the model"
    if report.result == "no_power":
        return "not provably equal to the model"
    return (
        f"verification: {plain(report.result)[:_MAX_RESULT]}"
        if report.result
        else "not verified by this server"
    )


def _place(view: ArtifactView) -> str:
    """Return where it runs, by its target."""
    try:
        target = parse_target(view.target)
    except UnknownTarget:
        return f"runs on {view.target}"
    if not target.exists:
        return "runs nowhere: its target is a placeholder"
    release = f"torch {target.torch}"
    if target.device == "cuda":
        number = _CAPABILITY.fullmatch(target.arch)
        capability = f"{number[1]}.{number[2]}" if number else target.arch
        return f"runs on GPUs of compute capability {capability} with {release}"
    return f"runs on {target.arch.replace('x86_64_v', 'x86-64-v').replace('x86_64', 'x86-64')} CPUs with {release}"
