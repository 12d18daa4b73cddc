"""Today: who works, what runs and waits, and what was measured again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.codec import encode
from pt2hub.server.demo import machines
from pt2hub.server.demo.plan import made_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from pt2hub.server.demo.history import History
    from pt2hub.server.demo.rows import Rows

NEVER_OFFERED = "torch2.13-cu130-sm100"
"""The target of GPUs that were ordered and are not there yet."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of the last day.

    Attributes:
        arch: What it builds for.
        number: Which of its kind.
        began: Days ago.
        seen: Hours ago that it was last heard of.
        left: Whether it ended on purpose.
    """

    arch: str
    number: int
    began: float
    seen: float
    left: bool = False


WORKERS = (
    Worker("sm90", 1, 6.2, 0.0),
    Worker("sm80", 1, 2.1, 0.0),
    Worker("sm90", 2, 6.2, 0.6, left=True),
    Worker("sm89", 1, 11.4, 3.1, left=True),
    Worker("sm75", 1, 19.0, 9.4),
    Worker("x86_64_v4", 1, 4.5, 0.4, left=True),
    Worker("x86_64_v4", 2, 4.5, 5.2),
    Worker("x86_64_v3", 1, 30.2, 2.2, left=True),
)
"""Nobody of them lives on: those that were heard of just now are lost within a minute."""


def write_workers(rows: Rows, history: History, now: datetime) -> None:
    """Writes the workers of the last day."""
    for worker in WORKERS:
        machine = machines.machine(worker.arch, machines.NEWER, 1e3)
        seen = now - timedelta(hours=worker.seen)
        rows.add(
            "workers",
            id=machine.worker(worker.number),
            target=machine.target.name,
            environment=history.environment(machine.environment)[0],
            toolchain=encode(machine.toolchain),
            packages={"torch": machine.toolchain.torch, "pt2hub": "0.1.0"},
            host=f"{machine.host}-{worker.number}.example.com",
            version="0.1.0",
            concurrency=1 if worker.arch.startswith("sm") else 2,
            clock_skew=0.02 * worker.number,
            started_at=now - timedelta(days=worker.began),
            last_seen=seen,
            draining_at=seen - timedelta(minutes=9) if worker.left else None,
            left_at=seen if worker.left else None,
            isolation="sandbox",
            isolation_profile=made_up("profile of the sandbox"),
        )


def live_workers() -> Iterator[str]:
    """Names of the workers that builds run on."""
    for worker in WORKERS:
        if not worker.seen:
            yield machines.machine(worker.arch, machines.NEWER, 1e3).worker(worker.number)
