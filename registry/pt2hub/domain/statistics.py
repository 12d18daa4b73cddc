"""What the build plane looks like from outside: queues, workers, and what became of every attempt so far."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

MANY_ATTEMPTS = 3
"""From this attempt on a build is worth a look: a healthy one needs one."""
STEP_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Seconds: from a reused step to a long autotuning."""


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A target's queue and workers now.

    Attributes:
        target: The target's name.
        queued: Builds that wait for it.
        oldest_seconds: For how long the first of them has waited, 0 where none waits.
        running: Builds that run on it.
        slots: Builds and measuring jobs that its live workers take at a time; draining ones take none.
        workers: Its workers by state, each state of `WORKER_STATES`; lost ones for a day.
        measuring_queued: Measuring jobs that wait for it, which builds go before.
        measuring_running: Measuring jobs that run on it.
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
        """Workers that live."""
        return sum(count for state, count in self.workers.items() if state != "lost")


WORKER_STATES = ("idle", "busy", "draining", "lost")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """When a live worker was last heard of.

    Attributes:
        worker: Its id.
        target: What it builds for.
        seconds: Since its last heartbeat.
    """

    worker: str
    target: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Durations:
    """How long something took, each time.

    Attributes:
        counts: How often it took at most each of `STEP_BOUNDS` and more than the one before; then longer.
        seconds: Of all times together.
    """

    counts: tuple[int, ...] = (0,) * (len(STEP_BOUNDS) + 1)
    seconds: float = 0.0

    def plus(self, bound: float, count: int, seconds: float) -> Durations:
        """With some more times of which none was longer than a bound; one of an older release fits too."""
        counts = list(self.counts)
        counts[bisect.bisect_left(STEP_BOUNDS, bound)] += count
        return Durations(tuple(counts), self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Everything that is counted.

    Attributes:
        queues: By target's name; every target that was ever offered or asked for.
        heartbeats: Of the live workers.
        attempts: Ended attempts at builds by target and outcome.
        failures: Attempts at builds that ended with an error, by target and the error's code.
        successes: Succeeded builds by target, and whether compiled code was reused.
        steps: How long steps of builds took that ended well, by name.
        measuring_attempts: Ended attempts at measuring jobs by target and outcome.
        measuring_failures: Those that ended with an error, by target and the error's code.
    """

    queues: tuple[QueueStatistics, ...]
    heartbeats: tuple[Heartbeat, ...]
    attempts: dict[tuple[str, str], int]
    failures: dict[tuple[str, str], int]
    successes: dict[tuple[str, str], int]
    steps: dict[str, Durations]
    measuring_attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    measuring_failures: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RepeatedBuild:
    """A build that is not over after several attempts.

    Attributes:
        id: The build's id.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        state: `queued` or `running`.
        attempt: Number of its latest attempt.
        failures: How many of them count against it.
        worker: The worker that has it, or None.
        last: How the latest ended attempt ended: its error's code, else its outcome; None where none ended.
        kind: `build`, or `measure` for a job that times an artifact again.
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
