"""Measurements side by side: what belongs together has one scale."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pt2hub.domain.performance import METRICS, OF_JOBS
from pt2hub.wire.inspecting import FigureView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


WIDTH = 120.0
"""Of the longest bar, in its own unit."""
_SUBJECTS = {"artifact": "this artifact", "torch_compile": "torch.compile", "split": "with split weights"}
_MACHINE = ("gpu", "cpu_model")


@dataclass(frozen=True, slots=True)
class Row:
    """A figure, and where it lies on its group's scale.

    Attributes:
        figure: The figure.
        subject: Of what, in words.
        value: Length of its bar, of `WIDTH`.
        low: Where its spread begins.
        high: Where its spread ends.
        machine: Where it was measured, in short.
    """

    figure: FigureView
    subject: str
    value: float
    low: float
    high: float
    machine: str

    @property
    def spread(self) -> float | None:
        """Half of what lies between the lowest and the highest, relative to the figure; None of a single one."""
        figure = self.figure
        return (
            (figure.high - figure.low) / 2 / abs(figure.value)
            if figure.value and figure.low < figure.high
            else None
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Figures of one metric at one batch size.

    Attributes:
        metric: The metric.
        text: What it is, for people; empty where only its reporters know it.
        better: `lower`, `higher`, or None.
        batch: Batch size, or None.
        rows: The figures, the artifact's own first.
    """

    metric: str
    text: str
    better: str | None
    batch: int | None
    rows: tuple[Row, ...]

    @property
    def lasting(self) -> bool:
        """Whether it is of the build: its steps' times and what has a size; no job measures that again."""
        return self.metric in METRICS and self.metric not in OF_JOBS and self.metric != "speedup"


def groups(figures: Iterable[FigureView], environments: Mapping[str, Mapping[str, Any]]) -> list[Group]:
    """Figures by metric and batch size.

    Args:
        figures: In the order in which they are shown.
        environments: Fields of their environment classes.
    """
    return [
        _group(metric, batch, list(found), environments)
        for (metric, batch), found in groupby(figures, key=lambda item: (item.metric, item.batch))
    ]


def _group(
    metric: str, batch: int | None, found: list[FigureView], environments: Mapping[str, Mapping[str, Any]]
) -> Group:
    known = METRICS.get(metric)
    largest = {
        unit: max(max(abs(item.high), abs(item.value)) for item in found if item.unit == unit) or 1.0
        for unit in {item.unit for item in found}
    }
    rows = tuple(
        _row(item, WIDTH / largest[item.unit], environments.get(item.class_digest, {})) for item in found
    )
    return Group(metric, known.text if known else "", known.better if known else None, batch, rows)


def _row(item: FigureView, scale: float, environment: Mapping[str, Any]) -> Row:
    value, low, high = (round(abs(figure) * scale, 1) for figure in (item.value, item.low, item.high))
    machine = next((str(environment[name]) for name in _MACHINE if environment.get(name)), "")
    return Row(item, _SUBJECTS.get(item.subject, item.subject), value, low, high, machine)
