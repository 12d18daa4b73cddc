"""How quick an artifact is, out of all that was measured of it: the latest run, and what ran beside it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from pt2hub.rendering.moves import factor
from pt2hub.rendering.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pt2hub.wire.artifacts import MeasurementView

_OWN, _TIME, _RATIO = "artifact", "latency_p50", "speedup"
_NAMES = {"torch_compile": "torch.compile"}
_LATEST = 200
"""Reports that a figure is the median of, as the server's rule has it."""


def rows(measured: Sequence[MeasurementView]) -> tuple[tuple[str, str, str], ...]:
    """An artifact's figures, one of each metric and batch size, and what ran beside it."""
    return (*_own(measured), *_beside(measured))


def line(measured: Sequence[MeasurementView]) -> str:
    """How long its calls take, and those of what ran beside it, in a line; empty where nobody timed it."""
    own = [f"{text} at {batch}" if batch else text for name, text, batch in _own(measured) if name == _TIME]
    beside = [f"{name} {text} ({told})" for name, text, told in _beside(measured)]
    return "; ".join(filter(None, (", ".join(own), *beside)))


def figure(items: Iterable[MeasurementView]) -> float:
    """The figure of one metric: that of its latest run; where there are reports only, the median of the latest.

    Args:
        items: All that was measured of it, at least one.
    """
    ordered = sorted(items, key=lambda item: item.measured_at)
    runs = [item.value for item in ordered if item.source != "report"]
    return runs[-1] if runs else median(item.value for item in ordered[-_LATEST:])


def against(ratio: float, name: str = "") -> str:
    """A ratio of times in words: of 2 `2 times faster`, of 0.5 `2 times slower`, with a name `2 times slower than eager`.

    Args:
        ratio: The other's time over the artifact's own, more than 0.
        name: The other, where it must be said.
    """
    times = factor(max(ratio, 1 / ratio))
    if times == "1":
        return f"as fast as {name}" if name else "as fast"
    return f"{times} times {'faster' if ratio > 1 else 'slower'}{f' than {name}' if name else ''}"


def _own(measured: Iterable[MeasurementView]) -> Iterator[tuple[str, str, str]]:
    found: dict[tuple[str, int | None, str], list[MeasurementView]] = {}
    for item in measured:
        if item.subject == _OWN:
            found.setdefault((item.metric, item.batch, item.unit), []).append(item)
    for (metric, batch, unit), items in found.items():
        yield metric, quantity(figure(items), unit), f"batch {batch}" if batch else ""


def _beside(measured: Iterable[MeasurementView]) -> Iterator[tuple[str, str, str]]:
    """What ran in the build's own process, each with the artifact's own time there: its ratio tells it.

    The artifact's other figures are of fresh processes, beside which the model in eager mode may look faster than it is.
    """
    latest = {(item.metric, item.subject, item.batch): item for item in measured if item.subject != _OWN}
    for (metric, subject, batch), ratio in latest.items():
        time = latest.get((_TIME, subject, batch))
        if metric != _RATIO or time is None or ratio.value <= 0:
            continue
        own = quantity(time.value / ratio.value, time.unit)
        at = f" at batch {batch}" if batch else ""
        told = f"this artifact {own} in the same process{at}, {against(ratio.value)}"
        yield _NAMES.get(subject, subject), quantity(time.value, time.unit), told
