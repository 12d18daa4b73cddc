"""`pt2hub demo`: a first publish, a retrained one, and then the measurements of both, in a home of its own."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pt2hub.cli.trial import Trial, temporary_home
from pt2hub.errors import InternalError, NotMeasured
from pt2hub.rendering import speeds
from pt2hub.server.interrupts import Interrupts
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pt2hub.client.client import Client
    from pt2hub.client.publishing import BuildEvent
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.shapes import BuildView

SPEC: dict[str, Any] = {
    "model": "vision/resnet18",
    "source": {"factory": "torchvision.models:resnet18", "kwargs": {}, "seed": 0},
    "inputs": [
        {"name": "x", "shape": ["batch", 3, 224, 224], "dtype": "float32", "generate": {"normal": {}}}
    ],
    "dims": {"batch": {"min": 1, "max": 32, "example": 2}},
    "targets": ["auto"],
    "checks": {"tolerance": 1.0e-3},
}
FIRST, SECOND = "vision/resnet18@1", "vision/resnet18@2"
SHAPES = '{"x": [2, 3, 224, 224]}'
"""Of the example inputs, for a process that is to load the artifact before it knows anything of it."""
NO_COMPILER = {"PT2HUB_BUILD_ENV": "CXX=/bin/false"}
"""Builds get a compiler that always fails, so that reuse is shown and not said."""
_SHOWN = frozenset(("latency_p50", "throughput", "load_time", "first_inference", "eager", "torch.compile"))
"""Rows of the table: metrics of the artifact, and what ran beside it."""
_SUBJECTS = {"artifact": "aot", "eager": "eager", "torch_compile": "torch_compile"}
"""What the median time of a call is shown of, and how the figures name it."""


def run(say: Callable[[str], None]) -> dict[str, Any]:
    """Runs the demo.

    Args:
        say: Shows a line of what happens.

    Returns:
        The measured figures.

    Raises:
        Pt2hubError: A step failed; nothing is left running.
        Interrupted: A signal came; nothing is left running.
    """
    interrupts = Interrupts()
    with interrupts.installed(), temporary_home("pt2hub-demo-") as folder:
        trial = Trial(folder)
        try:
            return interrupts.call(partial(_run, trial, folder, say))
        finally:
            trial.end()


def _run(trial: Trial, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    weights = folder / "retrained.safetensors"
    say("pt2hub up: PostgreSQL, API and a worker for this machine")
    with trial.server() as client:
        figures = publish_first(client, say)
        figures |= loaded(trial, FIRST, say)
        trial.child("retrain", FIRST, str(weights))
        figures |= publish_retrained(client, weights, say)
        figures |= loaded(trial, SECOND, say)
        return figures | measurements(client, (FIRST, SECOND), say)


def publish_first(client: Client, say: Callable[[str], None], spec: dict[str, Any] = SPEC) -> dict[str, Any]:
    """The first publish: export, compile, prove, store."""
    say("publish torchvision's resnet18, batch 1 to 32")
    build, seconds = publish(client, spec, say)
    return {
        "first_publish_s": round(seconds, 3),
        "first_publish_steps": steps_of(build),
        "artifact_digest": _digest(build),
        "target": build.target,
    }


def publish_retrained(
    client: Client, weights: Path, say: Callable[[str], None], spec: dict[str, Any] = SPEC
) -> dict[str, Any]:
    """The same graph with other weights."""
    say("publish retrained weights")
    before = client.artifact(client.resolve(FIRST).artifacts[0].digest).manifest["layers"][0]
    started = time.monotonic()
    build, _ = publish(client, {**spec, "weights": client.upload_file(weights)}, say)
    seconds = time.monotonic() - started
    second = client.artifact(_digest(build))
    (code, layer), provenance = second.manifest["layers"], second.provenance
    return {
        "retrained_publish_s": round(seconds, 3),
        "retrained_publish_steps": steps_of(build),
        "compiler_processes_retrained": len(provenance["compiler_processes"]),
        "code_reused": provenance["code_reused_from"] == before["digest"] == code["digest"],
        "code_digest": code["digest"],
        "retrained_artifact_digest": _digest(build),
        "code_bytes": code["size"],
        "weights_bytes": layer["size"],
    }


def loaded(trial: Trial, reference: str, say: Callable[[str], None]) -> dict[str, float]:
    """Pull a version, load it and call it, in a fresh process; the worker may measure meanwhile."""
    name = f"{'first' if reference == FIRST else 'retrained'}_call_ms"
    seconds = float(trial.child("artifact", reference, SHAPES)["milliseconds"])
    say(f"  pulled, loaded and called in a fresh process: {seconds:.0f} ms after import torch")
    return {name: round(seconds, 3)}


def measurements(client: Client, references: Sequence[str], say: Callable[[str], None]) -> dict[str, Any]:
    """Wait for the measurements that each publication queued, and show them.

    Raises:
        NotMeasured: A measuring job failed or was cancelled.
    """
    say("the measurements, which each publication queued")
    started = time.monotonic()
    versions = [_measured(client, reference, say) for reference in references]
    figures: dict[str, Any] = {"measurements_s": round(time.monotonic() - started, 3)}
    for reference, build in zip(references, versions, strict=True):
        view = client.artifact(_digest(build))
        say(f"  {reference}")
        for metric, value, note in speeds.rows(view.measurements):
            if metric in _SHOWN:
                say(f"    {metric:24} {value:>12}  {note}".rstrip())
        figures |= _medians(view) if reference == FIRST else {}
    return figures


def _measured(client: Client, reference: str, say: Callable[[str], None]) -> BuildView:
    """The build of a version whose artifact is measured, once it is."""
    number = int(reference.rpartition("@")[2])
    version = client.follow(
        client.version(SPEC["model"], number),
        progress=False,
        until="measured",
        on_event=_steps_to(say, "measure"),
    )
    build = version.builds[0]
    status = build.measurement
    if status is None or status.state != "measured":
        raise NotMeasured(
            f"{reference} was not measured: {status.reason if status else 'nothing is known of it'}"
        )
    return build


def _medians(view: ArtifactView) -> dict[str, float]:
    """Median milliseconds of a call of the artifact and of what ran beside it, and the verified error."""
    found = {item.subject: item.value for item in view.measurements if item.metric == "latency_p50"}
    medians = {f"{name}_p50_ms": round(found[of], 3) for of, name in _SUBJECTS.items() if of in found}
    return {**medians, "relative_error": view.verification.get("relative_error", 0.0)}


def publish(client: Client, spec: dict[str, Any], say: Callable[[str], None]) -> tuple[BuildView, float]:
    """Publishes and waits; returns the build and its wall time in seconds.

    Raises:
        Pt2hubError: The build failed, with its own error.
    """
    started = time.monotonic()
    version = client.publish(spec, wait="ready", on_event=_steps_to(say))
    seconds = time.monotonic() - started
    build = version.builds[0]
    if build.error:
        raise from_dict(build.error)
    say(f"  {version.model}@{version.number} for {build.target}: proven, stored and ready in {seconds:.1f} s")
    return build, seconds


def steps_of(build: BuildView) -> dict[str, float]:
    """Seconds of each step of a build."""
    return {step.name: round(step.seconds or 0.0, 3) for step in build.steps}


def _steps_to(say: Callable[[str], None], kind: str = "build") -> Callable[[BuildEvent], None]:
    """What shows each step that ended, of builds or of measuring jobs."""

    def show(event: BuildEvent) -> None:
        if event.step and event.step.state == "done" and event.build.kind == kind:
            say(f"  {event.step.name:26} {event.step.seconds or 0:10.2f} s")

    return show


def _digest(build: BuildView) -> Digest:
    if build.artifact is None:
        raise InternalError(f"build {build.id} ended as {build.state} without an artifact")
    return build.artifact
