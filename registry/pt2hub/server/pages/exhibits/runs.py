"""The runs that an artifact's figures are from: when, where, and what each of them found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.rendering.comparing import metric
from pt2hub.rendering.quantities import quantity
from pt2hub.server.pages.exhibits.figures import subject_of
from pt2hub.wire.inspecting import FigureRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pt2hub.wire.inspecting import FigureView

MOST = 10
"""Runs that are listed."""
_MAIN = "latency_p50"


@dataclass(frozen=True, slots=True)
class Run:
    """A run, or figures that somebody reported at one time.

    Attributes:
        run: What is known of it.
        where: The machine, and what stood on it.
        main: Its median times of a call, as text.
        figures: Every figure of it: what it is of, and the figure with its spread.
    """

    run: FigureRun
    where: str
    main: str
    figures: tuple[tuple[str, str], ...]


def runs(figures: Iterable[FigureView]) -> list[Run]:
    """The runs behind figures and then reports, the latest first: production reports at a thousand times.

    Args:
        figures: In the order in which they are shown.
    """
    found: dict[tuple[str, str, str], list[tuple[FigureView, FigureRun]]] = {}
    for figure in figures:
        for run in figure.runs:
            found.setdefault((run.measured_at, run.job, run.reporter), []).append((figure, run))
    listed = sorted(found, key=lambda key: (found[key][0][1].source != "report", key), reverse=True)
    return [_run(found[key]) for key in listed[:MOST]]


def _run(items: list[tuple[FigureView, FigureRun]]) -> Run:
    own = [(figure, run) for figure, run in items if (figure.metric, figure.subject) == (_MAIN, "artifact")]
    main = ", ".join(
        quantity(run.value, figure.unit) + (f" at batch {figure.batch}" if figure.batch else "")
        for figure, run in own
    )
    first = items[0][1]
    return Run(first, where(first.environment), main, tuple(_figure(*item) for item in items))


def _figure(figure: FigureView, run: FigureRun) -> tuple[str, str]:
    of = f" of {subject_of(figure.subject)}" if figure.subject != "artifact" else ""
    low, high = quantity(run.low, figure.unit), quantity(run.high, figure.unit)
    spread = f" ({low} to {high})" if run.low < run.high else ""
    return f"{metric(figure.metric, figure.batch)}{of}", f"{quantity(run.value, figure.unit)}{spread}"


def where(environment: Mapping[str, Any]) -> str:
    """An environment in short: the machine, torch, and the driver of a GPU."""
    machine = environment.get("gpu") or environment.get("cpu_model") or "an unknown machine"
    told = [str(machine)]
    told += [f"{name} {environment[name]}" for name in ("torch", "driver") if environment.get(name)]
    return ", ".join(told)
