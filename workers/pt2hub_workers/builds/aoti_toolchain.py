"""The AOTInductor toolchain: every job runs in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub_workers.children.pool import SPARE_BYTES, SPARE_SHARE, Pool
from pt2hub_workers.operations.device_lock import DeviceLock, device_path
from pt2hub_workers.sandbox.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.workers import Isolation
    from pt2hub_workers.operations.machine import Machine
    from pt2hub_workers.sandbox import Launcher


class AotiToolchain(Pool):
    """AOTInductor in child processes."""

    def __init__(
        self,
        launcher: Launcher,
        machine: Machine,
        scratch: Path,
        environ: Mapping[str, str],
        *,
        concurrency: int = 1,
    ) -> None:
        self._machine = machine
        # A build that arrives while all slots are idle gets a warm child if memory allows; otherwise a child is
        # started on demand, which costs the import of torch.
        memory = self._machine.environment.memory_bytes or 0
        spares = min(concurrency, memory // SPARE_SHARE // SPARE_BYTES)
        device = DeviceLock(device_path(self._machine.device))
        confining = launcher.for_device(self._machine.device)
        workspaces = Workspaces(scratch, inside=confining.inside)
        super().__init__(confining, workspaces, environ, device=device, spares=max(1, spares))
        self.isolation: Isolation = confining.level
        self.isolation_profile: Digest | None = confining.profile

    def machine(self) -> Machine:
        """Return the worker's target, toolchain and environment."""
        return self._machine
