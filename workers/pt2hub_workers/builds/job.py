"""Base class of attempts: builds and measuring jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from pt2hub.server.container import Container
from pt2hub.system.redaction import Redactor
from pt2hub_workers.builds.autotune_tables import AutotuneTables
from pt2hub_workers.builds.build_verification import Listener
from pt2hub_workers.builds.toolchains import Toolchain
from pt2hub_workers.operations.device_hold import DeviceHold
from pt2hub_workers.operations.device_lock import DeviceLock
from pt2hub_workers.operations.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar

    from pt2hub.domain.builds import Claim
    from pt2hub_workers.builds.journal import Journal
    from pt2hub_workers.operations.cancellation import CancellationToken

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """Settings and services of a worker, used by every attempt."""

    container: Container
    machine: Machine
    toolchain: Toolchain
    device: DeviceLock
    factories: tuple[str, ...]
    verification_seconds: float
    redactor: Redactor = field(default_factory=Redactor)
    image: str | None = None
    autotune_tables: AutotuneTables | None = None


class Job(ABC):
    """One attempt of a worker."""

    yields: ClassVar[bool] = False
    """Whether other attempts get the device first when this one waits for it exclusively."""

    def __init__(
        self, claim: Claim, context: WorkerContext, journal: Journal, token: CancellationToken
    ) -> None:
        self._claim = claim
        self._context = context
        self._journal = journal
        self._token = token
        self._step = "fetch"
        self._device_hold = DeviceHold(
            context.device, token, self._report_detail, journal.add_wait, yields=self.yields
        )

    @abstractmethod
    def run(self) -> None:
        """Run every step; return when the result is published."""

    def listener(self, progress: Callable[[str], object]) -> Listener:
        """Return the listener for child processes other than the build's own."""
        return Listener(progress=progress, line=self._journal.line, output=self._journal.add_output)

    def _report_detail(self, detail: str) -> None:
        self._journal.step(self._step, "running", detail=detail)


def compare_measurements(container: Container) -> None:
    """Compare new measurements at once; maintenance does it later in any case."""
    try:
        container.comparisons.examine()
    except Exception as error:  # noqa: BLE001  # what is published stays published
        _log.warning("new measurements are compared later, by maintenance", error=str(error))
