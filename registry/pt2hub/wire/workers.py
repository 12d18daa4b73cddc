"""Workers, as the API answers them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.digests import Digest
from pt2hub.printed import Printed


@dataclass(frozen=True, slots=True)
class WorkerBuild:
    """A build that a worker has.

    Attributes:
        id: The build's id.
        model: The model's name.
        number: The version's number.
        attempt: Number of the attempt.
        step: The step that runs, None before the first.
        detail: The step's line of progress, or None.
        kind: `build`, or `measure` for a job that times an artifact again.
    """

    id: str
    model: str
    number: int
    attempt: int
    step: str | None = None
    detail: str | None = None
    kind: str = "build"


@dataclass(frozen=True, slots=True, repr=False)
class WorkerView(Printed):
    """A worker, and what it is doing.

    Attributes:
        id: Its name, new for each process.
        target: What it builds for.
        state: `idle`, `busy`, `draining` (finishes what it has, takes nothing), `lost` (silent for too long) or
            `left`.
        host: Its machine's name.
        version: Its release of pt2hub.
        concurrency: Builds it takes at a time.
        builds: What it has now.
        toolchain: The versions that shape its code.
        environment: Digest of its machine's fingerprint, as the measurements name it.
        started_at: ISO 8601, UTC, by the database's clock, as all times here.
        last_seen: When it was last heard of.
        clock_skew: Seconds that its own clock was ahead of the database's when it registered.
        isolation: How it confines what it runs: `sandbox`, `process`, or `none` where it runs nothing of others.
        isolation_profile: Digest of the sandbox's profile, None without one.
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
    """Workers: those that live first, then those that went within a day.

    Attributes:
        workers: Newest first in each group.
    """

    workers: tuple[WorkerView, ...]
