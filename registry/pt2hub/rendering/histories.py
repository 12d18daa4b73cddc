"""Rendering of histories and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.performance.metrics import METRICS
from pt2hub.renderable import Sheet
from pt2hub.rendering.changes import format_change
from pt2hub.rendering.promotions import protection_rows
from pt2hub.rendering.quantities import format_share, quantity, sparkline

if TYPE_CHECKING:
    from pt2hub.wire.performance import ChangeView, HistoryView, PolicyView, SeriesView

NO_MEASUREMENTS = (
    "No such measurements yet. Artifacts are measured after publication; pt2hub versions {model} shows which are waiting, "
    "pt2hub measure {model} measures now, pt2hub history {model} --list lists measured metrics."
)
_SPARKLINE = 20
"""Number of values in a sparkline."""
_SHORT = 19
"""Length of a shortened digest: `sha256:` and 12 digits."""


def history(view: HistoryView) -> Sheet:
    """Return a history: a row for each series, with its newest value and its changes."""
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
        "" if series.implementation == "artifact" else series.implementation,
        sparkline(values[-_SPARKLINE:]),
        f"{quantity(newest.value, series.unit)} at version {newest.number}",
        _change_text(flagged, series) if flagged else "",
        series.class_digest[:_SHORT],
    )


def _change_text(change: ChangeView, series: SeriesView) -> str:
    beside = " side by side" if change.method == "paired" else ""
    return f"{change.outcome} since {change.number}{beside} ({format_change(change.ratio, series.metric, series.unit)})"


def _remarks(view: HistoryView) -> tuple[str, ...]:
    if not view.series:
        return (NO_MEASUREMENTS.format(model=view.model),)
    older = ["There are older versions; use --before with the first version's number."]
    others = ["There are more series; filter by target, batch or environment."]
    return tuple(older * any(series.more for series in view.series) + others * view.more)


def policy(view: PolicyView) -> Sheet:
    """Return a policy: a row for each check."""
    checks = view.document.get("checks") or ()
    rows = tuple(
        (
            check.get("alias") or "every alias",
            check.get("metric", "-"),
            f"at most {format_share(check.get('max_worse', 0), digits=4)} worse",
            check.get("target") or "",
            f"batch {check['batch']}" if check.get("batch") else "",
        )
        for check in checks
    )
    protected = tuple((alias, name, needed, "", "") for alias, name, needed in protection_rows(view.document))
    made = f" (by {view.by}, {view.at})" if view.by else ""
    return Sheet(f"policy of {view.model}, revision {view.revision}{made}", (*rows, *protected))
