"""View models of the front page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


Order = Literal["change", "recent", "name"]
"""Orders of the list of models: the worst change first, the newest first, by name."""
AliasChoice = Literal["", "prod", "any", "none"]
"""Models to list by their aliases: all, those in production, those with any alias, those without one."""


@dataclass(frozen=True, slots=True)
class ModelFilter:
    """Models to list; empty attributes do not filter.

    Attributes:
        search: A part of the name.
        target: A target for which the version in production or the newest one has a build.
        label: `KEY` or `KEY=VALUE`, of the model itself, its version in production or its newest version.
    """

    search: str = ""
    team: str = ""
    alias: AliasChoice = ""
    target: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Production:
    """The version in production.

    Attributes:
        alias: The alias that says so; of several, the one with the shortest name.
        since: When the alias was moved there, ISO 8601, UTC, as all times here.
        by: Name of the person or token that moved it.
    """

    alias: str
    number: int
    since: str | None
    by: str


@dataclass(frozen=True, slots=True)
class Regression:
    """The worst regression of a model that its version in production still has.

    A regression counts until a later version, up to that one, is flagged as better in the same series.

    Attributes:
        number: The version that it was flagged for.
        before: The version that it was compared with.
        production: The version in production, None where there is none.
        ratio: New value divided by the old one.
        at: When it was flagged.
        others: Further series of the model that regressed.
    """

    model: str
    number: int
    before: int
    production: int | None
    metric: str
    unit: str
    target: str
    batch: int | None
    ratio: float
    at: str
    others: int = 0


@dataclass(frozen=True, slots=True)
class LastBuild:
    """The build of a model's newest version that says most: a failed one, else the latest.

    Attributes:
        at: When it ended, started or was queued.
    """

    id: str
    number: int
    target: str
    state: str
    at: str


@dataclass(frozen=True, slots=True)
class ModelOverview:
    """A model with its version in production, speed and last build.

    Attributes:
        model: The model with its aliases and newest versions.
        production: The version in production, None if no production alias is on one.
        speed: `latency_p50` of the version in production, or of the newest ready one where none is, with the
            versions before it; None if it was not measured.
        regression: The worst regression that version still has.
        measurement: Where that version stands if it is not measured whole: `measuring`, `waiting`, `failed` or
            `not_measured`; empty where it is.
    """

    model: ModelView
    production: Production | None = None
    speed: Trend | None = None
    regression: Regression | None = None
    build: LastBuild | None = None
    measurement: str = ""

    @property
    def shown(self) -> int | None:
        """The version whose speed is shown."""
        return self.production.number if self.production else self.model.newest_ready


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """A page of models.

    Attributes:
        models: Some of them, in their order.
        next: Name of the last one, after which the next page begins; None at the end.
    """

    models: tuple[ModelOverview, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class FilterChoices:
    """Values to filter by, by name, up to a maximum."""

    teams: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts for the front page. Each is counted up to a bound (`MOST`), which then means at least.

    Attributes:
        models: Models.
        aliased: Those of them that have an alias.
        running: Builds and measuring jobs that run.
        queued: Those that wait.
        failed: Those that failed within `FAILED_DAYS`.
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
