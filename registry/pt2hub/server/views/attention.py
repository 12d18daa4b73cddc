"""View models of what needs somebody: damage and regressions in production, failed builds, builds without a worker."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.server.views.overview import Regression

ATTENTION_DAYS = 30
"""Days for which a regression or a failed build needs somebody; later, nobody is expected to act."""
MAX_COUNTED = 1000
"""Up to how many of each kind are counted."""


@dataclass(frozen=True, slots=True)
class DamagedVersion:
    """A version in production that cannot be pulled for some targets, since blobs of its artifacts are damaged.

    Attributes:
        targets: Those targets, in the order of their names.
        at: When the damage was found, ISO 8601, UTC, as all times here.
    """

    model: str
    number: int
    targets: tuple[str, ...]
    at: str


@dataclass(frozen=True, slots=True)
class FailedBuild:
    """A failed build of a model's newest version, or a failed measuring job of one in production.

    Attributes:
        code: The error's code, empty if unknown.
        at: When it failed.
    """

    id: str
    model: str
    number: int
    target: str
    code: str
    at: str
    is_measuring: bool = False


@dataclass(frozen=True, slots=True)
class IdleQueue:
    """Builds that wait for a target without a live worker.

    Attributes:
        since: When the first of them was queued.
    """

    target: str
    builds: int
    since: str


@dataclass(frozen=True, slots=True)
class UnmeasuredVersion:
    """A version in production without a measurement.

    Attributes:
        since: When the alias was moved there, None if unknown.
    """

    model: str
    number: int
    alias: str
    since: str | None


@dataclass(frozen=True, slots=True)
class Attention:
    """What needs somebody, each kind with the most urgent first, up to `MAX_COUNTED`."""

    regressions: tuple[Regression, ...] = ()
    failed: tuple[FailedBuild, ...] = ()
    queues: tuple[IdleQueue, ...] = ()
    unmeasured: tuple[UnmeasuredVersion, ...] = ()
    has_production: bool = True
    damaged: tuple[DamagedVersion, ...] = ()

    @property
    def count(self) -> int:
        """The number of all."""
        kinds = (self.damaged, self.regressions, self.failed, self.queues, self.unmeasured)
        return sum(map(len, kinds))
