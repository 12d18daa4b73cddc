"""Toolchains: what turns a spec into an artifact. The attempt around it is the same for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pt2hub.errors import UnknownTarget
from pt2hub_workers.device import Device, device_path
from pt2hub_workers.machine import probe_machine
from pt2hub_workers.noop import NoopToolchain
from pt2hub_workers.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub_workers.config import WorkerConfig
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.machine import Machine

SPARE_BYTES = 1 << 30
"""Memory of a waiting pair of children, one of each role, rounded up: both have imported torch."""
SPARE_SHARE = 8
"""One part in so many of the machine's memory may wait."""


class Hand(Protocol):
    """One that does a single job and is then used up."""

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
            Pt2hubError: The error it reported.
        """


class Toolchain(Protocol):
    """What a worker builds with."""

    def machine(self) -> Machine:
        """What this worker is with it.

        Raises:
            BadConfiguration: It cannot work here.
            UnknownTarget: It cannot build for the target that was asked for.
        """

    def take(self, role: str) -> Hand:
        """One for a job: `build` or `gate`."""

    def refill(self) -> None:
        """Prepares what the next jobs will take; returns at once."""

    def wait_warm(self, seconds: float) -> bool:
        """Waits until everything is prepared; returns whether it is."""

    def close(self) -> None:
        """Ends what waits."""


class AotiToolchain(Pool):
    """AOTInductor, in child processes."""

    def __init__(self, environ: Mapping[str, str], *, target: str = "auto", concurrency: int = 1) -> None:
        """Asks the machine what it is.

        Args:
            environ: Environment of the children.
            target: What to build for, of what the machine can be.
            concurrency: Builds at a time.

        Raises:
            BadConfiguration: torch does not start.
            UnknownTarget: The machine cannot be that.
        """
        self._machine = probe_machine(environ, target)
        # A build that comes while all slots are idle starts warm, as far as memory allows; below that a child is
        # started when it is needed, which costs the import of torch.
        spares = min(concurrency, self._machine.environment.memory_bytes // SPARE_SHARE // SPARE_BYTES)
        device = Device(device_path(self._machine.device))
        super().__init__(environ, device=device, spares=max(1, spares))

    def machine(self) -> Machine:
        """What this worker is with it."""
        return self._machine


def open_toolchain(config: WorkerConfig) -> Toolchain:
    """The toolchain that the settings name.

    Raises:
        BadConfiguration: It does not start.
        UnknownTarget: It cannot build for the target that the settings name.
    """
    if config.toolchain == "aoti":
        return AotiToolchain(config.child_environ, target=config.target, concurrency=config.concurrency)
    toolchain = NoopToolchain(config.noop_pauses)
    only = toolchain.machine().target.name
    if config.target not in ("auto", only):
        raise UnknownTarget(
            f"the no-op toolchain cannot be {config.target[:80]!r}",
            where="PT2HUB_WORKER_TARGET",
            hint=f"It can be: auto, {only}.",
        )
    return toolchain
