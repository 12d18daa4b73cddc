"""A line for each model: its version in production, its speed, what changed, and its last build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import url_for

from pt2hub.rendering.changes import format_change
from pt2hub.rendering.quantities import format_count, quantity
from pt2hub.rendering.sheets import measurement_state
from pt2hub.rendering.targets import short_target
from pt2hub.rendering.times import format_utc_time
from pt2hub.server.pages.trend_texts import explain_trend, format_trend
from pt2hub.server.views.overview import ModelOverview

if TYPE_CHECKING:
    from pt2hub.server.views.overview import Regression, Trend

_LATENCY = "latency_p50"


@dataclass(frozen=True, slots=True)
class Change:
    """What changed most, up to the version whose speed is shown.

    Attributes:
        outcome: `worse`, `better`, or empty where nothing was flagged.
        why: In full, for hovering.
        href: Where the evidence is; None without a change.
        target: The device, where the target is another one than that of the speed.
        others: Further series that regressed.
    """

    outcome: str
    text: str
    why: str
    href: str | None = None
    target: str = ""
    others: int = 0


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A line of the list.

    Attributes:
        moved: How and when the version came into production, for hovering.
        missing: Why there is no speed.
        trend: The speed's series in words, for screen readers.
        change: What changed most; None where nothing is measured.
    """

    overview: ModelOverview
    moved: str
    missing: str
    trend: str
    change: Change | None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.overview.model.name


def row_of(overview: ModelOverview) -> ModelRow:
    """Return the line of a model."""
    return ModelRow(
        overview,
        _moved(overview),
        _missing(overview),
        _describe(overview.speed) if overview.speed else "",
        _change(overview),
    )


def _moved(overview: ModelOverview) -> str:
    found = overview.production
    if found is None:
        return ""
    since = f" since {format_utc_time(found.since)}" if found.since else ""
    return f"{found.alias} is on version {found.number}{since}" + (
        f", moved by {found.by}" if found.by else ""
    )


def _missing(overview: ModelOverview) -> str:
    if overview.speed:
        return ""
    if overview.shown is None:
        return "no ready version" if overview.model.newest else "no version yet"
    return measurement_state(overview.measurement or "not_measured")


def _describe(trend: Trend) -> str:
    series = trend.series
    batch = f", batch {series.batch}" if series.batch else ""
    lowest, highest = (quantity(pick(series.values), series.unit) for pick in (min, max))
    count = format_count(len(series.values), "version")
    return f"Median latency of {count} up to {series.newest} on {series.target}{batch}: from {lowest} to {highest}"


def _change(overview: ModelOverview) -> Change | None:
    if overview.regression:
        return _regression(overview, overview.regression)
    trend = overview.speed
    if trend is None:
        return None
    if trend.change is None:
        return Change("", format_trend(trend), explain_trend(trend))
    series, change = trend.series, trend.change
    text = format_change(change.ratio, series.metric, series.unit)
    return Change(
        change.outcome,
        f"{text} since {change.number}",
        f"Version {change.number} compared with version {change.before} on {series.target}",
        _compare(overview, change.before, change.number, series.target),
    )


def _regression(overview: ModelOverview, found: Regression) -> Change:
    amount = format_change(found.ratio, found.metric, found.unit)
    metric = "" if found.metric == _LATENCY else f"{found.metric} "
    others = (
        f"; {found.others} more series {'has' if found.others == 1 else 'have'} regressed"
        if found.others
        else ""
    )
    is_main = overview.speed is not None and overview.speed.series.target == found.target
    return Change(
        "worse",
        f"{metric}{amount} since {found.number}",
        f"Version {found.number} compared with version {found.before} on {found.target}{others}",
        _compare(overview, found.before, found.number, found.target),
        "" if is_main else short_target(found.target).partition(" · ")[0],
        found.others,
    )


def _compare(overview: ModelOverview, before: int, number: int, target: str) -> str:
    name = overview.model.name
    return url_for("pages.compare", before=f"{name}@{before}", after=f"{name}@{number}", target=target)
