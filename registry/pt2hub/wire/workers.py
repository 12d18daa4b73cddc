"""Workers in API responses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.digests import Digest
from pt2hub.renderable import Renderable


@dataclass(frozen=True, slots=True)
class WorkerBuild:
    """A build that a worker runs.

    Attributes:
        id: Id of the build.
        model: Name of the model.
        number: Number of the version.
        attempt: Number of the attempt.
        step: The running step, None before the first.
        detail: Progress text of the step, or None.
        kind: `build`, or `measure` for a measuring job.
    """

    id: str
    model: str
    number: int
    attempt: int
    step: str | None = None
    detail: str | None = None
    kind: str = "build"


@dataclass(frozen=True, slots=True, repr=False)
class WorkerView(Renderable):
    """A worker and its current builds.

    Attributes:
        id: Unique name, new for each process.
        target: The target it builds for.
        state: `idle`, `busy`, `draining` (finishes its builds, accepts no new ones), `lost` (heartbeat timeout) or
            `left`.
        host: Host name.
        version: pt2hub release.
        concurrency: Maximum number of builds at a time.
        builds: Current builds.
        toolchain: Versions of its build tools.
        environment: Digest of its machine's fingerprint, as in measurements.
        started_at: ISO 8601, UTC, by the database's clock, like all times.
        last_seen: Time of the latest heartbeat.
        clock_skew: Seconds that its clock was ahead of the database's at registration.
        isolation: How it confines untrusted code: `sandbox`, `process`, or `none` if it runs none.
        isolation_profile: Digest of the sandbox profile, None without one.
    """

    id: str
    target: str
    state: str
    host: str
    version: str
    concurrency: int
    started_at: str
    last_seen: str
    builds: tuple[WorkerBuild, ...] = ()
    toolchain: dict[str, Any] = field(default_factory=dict)
    environment: Digest | None = None
    clock_skew: float = 0.0
    isolation: str = "process"
    isolation_profile: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerList:
    """Live workers, followed by those that left or were lost within a day.

    Attributes:
        workers: The workers, newest first in each group.
    """

    workers: tuple[WorkerView, ...]
