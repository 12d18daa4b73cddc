"""Toolchains: what turns a spec into an artifact. The attempt around it is the same for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pt2hub.errors import UnknownTarget
from pt2hub_workers.device import Device, device_path
from pt2hub_workers.machine import probe_machine
from pt2hub_workers.noop import NoopToolchain
from pt2hub_workers.pool import Pool
from pt2hub_workers.rooms import Rooms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.workers import Isolation
    from pt2hub_workers.config import WorkerConfig
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.machine import Machine
    from pt2hub_workers.rooms import Room
    from pt2hub_workers.sandbox import Launcher

SPARE_BYTES = 1 << 30
"""Memory of a waiting pair of children, one of each role, rounded up: both have imported torch."""
SPARE_SHARE = 8
"""One part in so many of the machine's memory may wait."""


class Hand(Protocol):
    """One that does a single job and is then used up."""

    @property
    def room(self) -> Room:
        """Where it works: it is told of files as it sees them, and tells of them relative to its room."""

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""

    def wait_warm(self, seconds: float) -> bool:
        """Waits until it is ready for its job, or ended; returns whether it is ready."""

    def close(self) -> None:
        """Ends it, and removes its room."""

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        halt: Halt,
    ) -> Any:  # noqa: ANN401  # the job's JSON result
        """Does the job.

        Args:
            job: JSON values.
            on_event: Called with each event, in the thread that called; what it returns answers a question.
            on_output: Called with each line that the job prints, from any thread.
            seconds: Time limit; waiting for the device does not count.
            halt: Stops it at once.

        Raises:
            ChildDied: It ended without an answer.
            ChildHung: It did not end in time.
            Halted: It was told to stop.
            LimitExceeded: It used more of the machine than it may.
            OutputRefused: What it sent is no message.
            Pt2hubError: The error it reported.
        """


class Toolchain(Protocol):
    """What a worker builds with.

    Attributes:
        isolation: How it confines what it runs for others; every artifact's provenance says so.
        isolation_profile: Digest of the sandbox's profile, None without one.
    """

    isolation: Isolation
    isolation_profile: Digest | None

    def machine(self) -> Machine:
        """What this worker is with it.

        Raises:
            BadConfiguration: It cannot work here.
            UnknownTarget: It cannot build for the target that was asked for.
        """

    def take(self, role: str) -> Hand:
        """One for a job, in an empty room, which the caller closes.

        Args:
            role: `build`, which runs users' code; `gate`, which runs what was built; `measure`, which times it; `judge`,
                which runs neither; `headers`, which compiles what builds share.

        Raises:
            BadConfiguration: There can be no room for it.
        """

    def open_room(self) -> Room:
        """A room in which no process works, for files that an attempt fetched itself; the caller closes it.

        Raises:
            BadConfiguration: There can be none.
        """

    def refill(self) -> None:
        """Prepares what the next jobs will take; returns at once."""

    def wait_warm(self, seconds: float) -> bool:
        """Waits until everything is prepared; returns whether it is."""

    def close(self) -> None:
        """Ends what waits."""


class AotiToolchain(Pool):
    """AOTInductor, in child processes."""

    def __init__(
        self,
        launcher: Launcher,
        machine: Machine,
        scratch: Path,
        environ: Mapping[str, str],
        *,
        concurrency: int = 1,
    ) -> None:
        """Prepares; `refill` starts children.

        Args:
            launcher: Starts them.
            machine: What this worker is.
            scratch: Parent of their rooms.
            environ: Their environment.
            concurrency: Builds at a time.

        Raises:
            SandboxUnavailable: The machine's GPU cannot be given to a sandbox.
        """
        self._machine = machine
        # A build that comes while all slots are idle starts warm, as far as memory allows; below that a child is
        # started when it is needed, which costs the import of torch.
        memory = self._machine.environment.memory_bytes or 0
        spares = min(concurrency, memory // SPARE_SHARE // SPARE_BYTES)
        device = Device(device_path(self._machine.device))
        confining = launcher.for_device(self._machine.device)
        rooms = Rooms(scratch, inside=confining.inside)
        super().__init__(confining, rooms, environ, device=device, spares=max(1, spares))
        self.isolation: Isolation = confining.level
        self.isolation_profile: Digest | None = confining.profile

    def machine(self) -> Machine:
        """What this worker is with it."""
        return self._machine


def open_toolchain(config: WorkerConfig, launcher: Launcher | None) -> Toolchain:
    """The toolchain that the settings name.

    Args:
        config: The settings.
        launcher: Starts children; the no-op toolchain has none.

    Raises:
        BadConfiguration: It does not start.
        UnknownTarget: It cannot build for the target that the settings name.
        SandboxUnavailable: The machine's GPU cannot be given to a sandbox.
    """
    if launcher is not None:
        environ = config.child_environ
        machine = probe_machine(launcher, environ, config.target)
        return AotiToolchain(launcher, machine, config.scratch, environ, concurrency=config.concurrency)
    toolchain = NoopToolchain(config.scratch, config.noop_pauses)
    only = toolchain.machine().target.name
    if config.target not in ("auto", only):
        raise UnknownTarget(
            f"the no-op toolchain cannot be {config.target[:80]!r}",
            where="PT2HUB_WORKER_TARGET",
            hint=f"It can be: auto, {only}.",
        )
    return toolchain
