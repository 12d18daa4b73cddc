"""View models of the front page."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.performance.metrics import Settled
from pt2hub.wire.performance import ChangeView, SeriesSummary
from pt2hub.wire.responses import ModelView


@dataclass(frozen=True, slots=True)
class Trend:
    """A series over its last versions, with its newest change.

    Attributes:
        series: The series with the measurements of its last versions.
        change: The newest flagged change among those versions; None if there is none.
        change_index: Index of the first measurement after that change; None without a change.
        level: Whether the measurements are steady, if no change was flagged.
    """

    series: SeriesSummary
    change: ChangeView | None = None
    change_index: int | None = None
    level: Settled = "too_few"


@dataclass(frozen=True, slots=True)
class ModelOverview:
    """A model with its aliases, newest versions and trends.

    Attributes:
        model: The model.
        newest_state: Readiness of its newest version, None without versions.
        newest_at: When that was submitted, ISO 8601, UTC, as all times here; likewise None.
        ready_at: When its newest ready version was submitted, None without one.
        trends: `latency_p50` at the example batch, one per target; those of the newest versions first.
        failed: Targets that the build of its newest version failed for.
        measurement: Where the newest ready version stands that is not measured whole: `measuring`, `waiting`, `failed`
            or `not_measured`; empty where it is.
    """

    model: ModelView
    newest_state: str | None = None
    newest_at: str | None = None
    ready_at: str | None = None
    trends: tuple[Trend, ...] = ()
    failed: tuple[str, ...] = ()
    measurement: str = ""


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """A page of models in the order of their names.

    Attributes:
        models: Some of them.
        next: What `after` must be for those that follow, None at the end.
    """

    models: tuple[ModelOverview, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts for the front page. Each is counted up to a bound (`MOST`), which then means at least.

    Attributes:
        models: Models.
        aliased: Those of them that have an alias.
        running: Builds and measuring jobs that run.
        queued: Those that wait.
        failed: Those submitted within `FAILED_DAYS` that failed.
        worse: Versions of which a change for the worse was flagged within `CHANGED_DAYS`.
        better: Those of which one for the better was.
        workers: Workers that live.
        targets: Targets that they offer.
    """

    models: int
    aliased: int
    running: int
    queued: int
    failed: int
    worse: int
    better: int
    workers: int
    targets: int


MOST = 10_000
"""How far anything is counted: nobody reads more digits, and every request counts anew."""
FAILED_DAYS = 7
CHANGED_DAYS = 30
