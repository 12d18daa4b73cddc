"""Sheets of performance views, as a terminal and a prompt show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.performance import METRICS
from pt2hub.printed import Sheet
from pt2hub.rendering.moves import moved
from pt2hub.rendering.quantities import quantity, sparkline

if TYPE_CHECKING:
    from pt2hub.wire.performance import ChangeView, HistoryView, PolicyView, SeriesView

NO_FIGURES = (
    "No such figures yet. An artifact is measured after it is published; pt2hub versions {model} says what waits for "
    "that, pt2hub measure {model} measures it now, pt2hub history {model} --list lists what was measured."
)
_SPARKLINE = 20
"""Figures of a sparkline."""
_SHORT = 19
"""Characters of a shortened digest: `sha256:` and 12 digits."""


def history(view: HistoryView) -> Sheet:
    """A history: one row for each series, with its newest figure and how it moved."""
    rows = tuple(_series(series) for series in view.series)
    known = METRICS.get(view.metric)
    title = f"{view.metric} of {view.model}" + (f" ({known.text})" if known else "")
    return Sheet(title, rows, _remarks(view))


def _series(series: SeriesView) -> tuple[str, ...]:
    values = [point.value for point in series.points]
    newest = series.points[-1]
    flagged = series.changes[-1] if series.changes else None
    return (
        series.target,
        f"batch {series.batch}" if series.batch else "",
        "" if series.subject == "artifact" else series.subject,
        sparkline(values[-_SPARKLINE:]),
        f"{quantity(newest.value, series.unit)} at version {newest.number}",
        _flagged(flagged, series) if flagged else "",
        series.class_digest[:_SHORT],
    )


def _flagged(change: ChangeView, series: SeriesView) -> str:
    beside = " side by side" if change.method == "paired" else ""
    return (
        f"{change.verdict} since {change.number}{beside} ({moved(change.ratio, series.metric, series.unit)})"
    )


def _remarks(view: HistoryView) -> tuple[str, ...]:
    if not view.series:
        return (NO_FIGURES.format(model=view.model),)
    older = ["There are older versions; ask for those before the first one's number."]
    others = ["There are more series; name a target, a batch or an environment."]
    return tuple(older * any(series.more for series in view.series) + others * view.more)


def policy(view: PolicyView) -> Sheet:
    """A policy: one row for each gate."""
    gates = view.document.get("gates") or ()
    rows = tuple(
        (
            gate.get("alias") or "every alias",
            gate.get("metric", "-"),
            f"at most {100 * gate.get('max_worse', 0):.4g} % worse",
            gate.get("target") or "",
            f"batch {gate['batch']}" if gate.get("batch") else "",
        )
        for gate in gates
    )
    made = f" (by {view.by}, {view.at})" if view.by else ""
    return Sheet(f"policy of {view.model}, revision {view.revision}{made}", rows)
