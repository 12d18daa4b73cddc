"""Operational statistics: queues, workers and outcomes of attempts."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

MANY_ATTEMPTS = 3
"""Number of attempts from which a build is listed as repeated; healthy builds need one."""
STEP_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Histogram bounds in seconds, from a reused step to long autotuning."""


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """Current queue and workers of a target.

    Attributes:
        target: The target's name.
        queued: Number of queued builds.
        oldest_seconds: Waiting time of the oldest queued build, 0 if there is none.
        running: Number of running builds.
        slots: Number of builds and measuring jobs that its live workers can run at a time, without draining workers.
        workers: Number of workers per state, for each of `WORKER_STATES`; lost ones are counted for a day.
        measuring_queued: Number of queued measuring jobs, which have lower priority than builds.
        measuring_running: Number of running measuring jobs.
    """

    target: str
    queued: int
    oldest_seconds: float
    running: int
    slots: int
    workers: dict[str, int]
    measuring_queued: int = 0
    measuring_running: int = 0

    @property
    def live(self) -> int:
        """Number of live workers."""
        return sum(count for state, count in self.workers.items() if state != "lost")


WORKER_STATES = ("idle", "busy", "draining", "lost")


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """Age of a live worker's heartbeat.

    Attributes:
        worker: Worker id.
        target: The worker's target.
        seconds: Seconds since its last heartbeat.
    """

    worker: str
    target: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Durations:
    """Histogram of durations.

    Attributes:
        counts: Number of durations per bucket of `STEP_BOUNDS`, with a last bucket for longer ones.
        seconds: Sum of all durations.
    """

    counts: tuple[int, ...] = (0,) * (len(STEP_BOUNDS) + 1)
    seconds: float = 0.0

    def plus(self, bound: float, count: int, seconds: float) -> Durations:
        """Return the histogram with durations added to the bucket of a bound; bounds of older releases fit too."""
        counts = list(self.counts)
        counts[bisect.bisect_left(STEP_BOUNDS, bound)] += count
        return Durations(tuple(counts), self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class ScrubStatistics:
    """What scrubs checked.

    Attributes:
        blobs: Number of checks of blobs and manifests.
        bytes: Bytes that were read for them.
        damaged: Number of blobs and manifests that are damaged now.
        oldest_seconds: Time since the check of the blob that was not checked for longest.
    """

    blobs: int = 0
    bytes: int = 0
    damaged: int = 0
    oldest_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """All operational statistics.

    Attributes:
        queues: Queues by target name, for every target that was ever offered or requested.
        heartbeats: Heartbeat ages of live workers.
        attempts: Number of ended build attempts by target and outcome.
        failures: Number of build attempts that ended with an error, by target and error code.
        successes: Number of succeeded builds by target and whether code was reused.
        steps: Durations of successful build steps, by name.
        measuring_attempts: Number of ended attempts of measuring jobs by target and outcome.
        measuring_failures: Number of attempts of measuring jobs that ended with an error, by target and error code.
        scrub: What scrubs checked, and what is damaged.
    """

    queues: tuple[QueueStatistics, ...]
    heartbeats: tuple[WorkerHeartbeat, ...]
    attempts: dict[tuple[str, str], int]
    failures: dict[tuple[str, str], int]
    successes: dict[tuple[str, str], int]
    steps: dict[str, Durations]
    measuring_attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    measuring_failures: dict[tuple[str, str], int] = field(default_factory=dict)
    scrub: ScrubStatistics = ScrubStatistics()


@dataclass(frozen=True, slots=True)
class RepeatedBuild:
    """An unfinished build after several attempts.

    Attributes:
        id: The build's id.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        state: `queued` or `running`.
        attempt: Number of its latest attempt.
        failures: Number of attempts that count as failures.
        worker: The worker that runs it, or None.
        last: Error code or else outcome of the latest ended attempt; None if none ended.
        kind: `build`, or `measure` for a measuring job.
    """

    id: str
    model: str
    number: int
    target: str
    state: str
    attempt: int
    failures: int
    worker: str | None
    last: str | None
    kind: str = "build"
