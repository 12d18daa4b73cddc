"""Registration of workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.targets import Target

Isolation: TypeAlias = Literal["sandbox", "process", "none"]
Required: TypeAlias = Literal["sandbox", "process"]
"""Minimum isolation that a server requires of its workers."""

NOTABLE_SKEW = 5.0
"""Clock skew of a worker in seconds above which a warning is shown. Larger skew is harmless: only the database's clock
counts, and workers correct the times they report."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker's registration.

    Attributes:
        worker_id: Unique name, new for each process.
        target: The target it builds for.
        toolchain: Versions of its build tools.
        environment: Fingerprint of its machine.
        packages: Versions of the packages that provide factories, including torch.
        host: Host name.
        version: pt2hub release.
        concurrency: Maximum number of builds at a time.
        clock: Its clock in seconds since the epoch, read just before registration.
        isolation: How it confines untrusted code: `sandbox`, `process`, or `none` if it runs none.
        isolation_profile: Digest of the sandbox profile, None without one.
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
