"""Workers: what they say about themselves when they begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.targets import Target

Isolation: TypeAlias = Literal["sandbox", "process", "none"]
Required: TypeAlias = Literal["sandbox", "process"]
"""The least that a server demands of its workers."""

NOTABLE_SKEW = 5.0
"""Seconds that a worker's clock may be off before anyone is told. Nothing goes wrong beyond it either: the
database's clock alone decides, and workers correct the times they report."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker that is there from now on.

    Attributes:
        worker_id: A name of its own, new for each process.
        target: What it builds for.
        toolchain: The versions that shape its code.
        environment: Its machine.
        packages: Versions of the packages that factories come from, torch included.
        host: Its machine's name.
        version: Its release of pt2hub.
        concurrency: Builds it takes at a time.
        clock: Its own clock, seconds since the epoch, read just before it registers.
        isolation: How it confines what it runs for others: `sandbox`, `process`, or `none` where it runs nothing.
        isolation_profile: Digest of the sandbox's profile, None without one.
    """

    worker_id: str
    target: Target
    toolchain: Toolchain
    environment: Environment
    packages: dict[str, str]
    host: str
    version: str
    concurrency: int
    clock: float
    isolation: Isolation = "process"
    isolation_profile: str | None = None
