"""Summary of an artifact's speed: its latest run and the baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.rendering.changes import factor
from pt2hub.rendering.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pt2hub.wire.artifacts import MeasurementView

_OWN, _TIME, _RATIO = "artifact", "latency_p50", "speedup"
_FIRST = "first_inference"
_NAMES = {"torch_compile": "torch.compile"}
_LATEST = 200
"""Number of latest reports whose median is shown, as on the server."""


def rows(measured: Sequence[MeasurementView]) -> tuple[tuple[str, str, str], ...]:
    """Return an artifact's latest values, one per metric and batch size, and those of baselines."""
    return (*_own(measured), *_beside(measured), *_first_calls(measured))


def line(measured: Sequence[MeasurementView]) -> str:
    """Return the call times of an artifact and its baselines in one line; empty without measurements."""
    own = [f"{text} at {batch}" if batch else text for name, text, batch in _own(measured) if name == _TIME]
    beside = [f"{name} {text} ({note})" for name, text, note in _beside(measured)]
    return "; ".join(filter(None, (", ".join(own), *beside)))


def latest_value(items: Iterable[MeasurementView]) -> float:
    """Return the value of the latest run; if there are only reports, the median of the latest ones.

    Args:
        items: All that was measured of it, at least one.
    """
    ordered = sorted(items, key=lambda item: item.measured_at)
    from statistics import median  # an import of several milliseconds

    runs = [item.value for item in ordered if item.source != "report"]
    return runs[-1] if runs else median(item.value for item in ordered[-_LATEST:])


def against(ratio: float, name: str = "") -> str:
    """Format a ratio of times: 2 is `2 times faster`, 0.5 is `2 times slower`, with a name `2 times slower than eager`.

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
        if item.implementation == _OWN:
            found.setdefault((item.metric, item.batch, item.unit), []).append(item)
    for (metric, batch, unit), items in found.items():
        yield metric, quantity(latest_value(items), unit), f"batch {batch}" if batch else ""


def _first_calls(measured: Sequence[MeasurementView]) -> Iterator[tuple[str, str, str]]:
    """Yield the first calls of other implementations in fresh processes, and how they compare with the artifact's."""
    latest = {(item.metric, item.implementation): item for item in measured if item.source != "report"}
    own = latest.get((_FIRST, _OWN))
    for (metric, implementation), cold in latest.items():
        if metric != _FIRST or implementation == _OWN:
            continue
        warm = latest.get((f"{_FIRST}_warm", implementation))
        notes = [
            "with cold caches",
            *([f"{quantity(warm.value, warm.unit)} with warm ones"] if warm else []),
            *([f"this artifact {against(cold.value / own.value)}"] if own and own.value > 0 else []),
        ]
        name = _NAMES.get(implementation, implementation)
        yield f"{name}, first call", quantity(cold.value, cold.unit), ", ".join(notes)


def _beside(measured: Iterable[MeasurementView]) -> Iterator[tuple[str, str, str]]:
    """Yield each implementation timed in the build's process, with the artifact's time there, derived from the ratio.

    The artifact's other measurements are from fresh processes; compared with those, eager mode may look too fast.
    """
    latest = {
        (item.metric, item.implementation, item.batch): item
        for item in measured
        if item.implementation != _OWN
    }
    for (metric, implementation, batch), ratio in latest.items():
        time = latest.get((_TIME, implementation, batch))
        if metric != _RATIO or time is None or ratio.value <= 0:
            continue
        own = quantity(time.value / ratio.value, time.unit)
        at = f" at batch {batch}" if batch else ""
        note = f"this artifact {own} in the same process{at}, {against(ratio.value)}"
        yield _NAMES.get(implementation, implementation), quantity(time.value, time.unit), note
