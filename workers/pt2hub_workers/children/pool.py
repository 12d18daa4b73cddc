"""Pool of child processes that wait for work with torch imported."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import Pt2hubError, WorkerLost
from pt2hub_workers.children.child import Child

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.operations.device_lock import DeviceLock
    from pt2hub_workers.sandbox import Launcher
    from pt2hub_workers.sandbox.workspaces import Workspace, Workspaces

SPARE_BYTES = 1 << 30
"""Memory of a waiting pair of children, one of each role, rounded up: both have imported torch."""
SPARE_SHARE = 8
"""Waiting children may take one part in `SPARE_SHARE` of the machine's memory."""
ROLES = ("build", "artifact")
"""Roles with waiting children; others start on demand."""
WARM_SECONDS = 120.0
"""How long children that import torch may keep benchmarks from the device."""
PATIENT = {"GOMP_SPINCOUNT": "1000"}
"""How often an OpenMP thread polls for work before it sleeps: GNU's own value for machines with more threads than cores,
which it cannot detect over several processes. Four processes of squeezenet1_1 on two cores took 31 ms per call with it,
and 2,000 ms with the default of 300,000 polls. It applies to timings as well: with other work on the machine, the ratios
of two builds spread by 17 % over 15 processes, and by 66 % without it."""
_log = structlog.get_logger()


class Pool:
    """Pool that keeps children of each role warm.

    Children start in the background while the device is shared: importing torch takes a core for seconds, and must not
    disturb timings. A sandboxed child waits in its workspace, because its mounts are fixed at the start; without a
    sandbox a child gets its workspace when it is taken, so that a build's path is that of a slot.
    """

    def __init__(
        self,
        launcher: Launcher,
        workspaces: Workspaces,
        environ: Mapping[str, str],
        *,
        device: DeviceLock,
        spares: int = 1,
    ) -> None:
        self._launcher = launcher
        self._workspaces = workspaces
        self._environ = {**PATIENT, **environ}
        self._device = device
        self._spares = spares
        self._waiting: dict[str, list[Child]] = {role: [] for role in ROLES}
        self._lock = threading.Lock()
        self._filling = threading.Lock()
        self._closed = threading.Event()

    def refill(self) -> None:
        """Start missing children in the background."""
        threading.Thread(target=self._fill, daemon=True, name="refill").start()

    def wait_warm(self, seconds: float) -> bool:
        """Wait until all waiting children are warm; return whether they are."""
        deadline = time.monotonic() + seconds
        while not self._is_warm():
            if self._closed.wait(0.05) or time.monotonic() > deadline:
                return False
        return True

    def take(self, role: str) -> Child:
        """Return a child of a role, warm if possible. The caller shares the device meanwhile, and closes the child."""
        child = self._pop_waiting(role)
        if child is None:
            return self._start(role, warm=False)
        if self._launcher.inside is not None:
            return child
        try:
            return child.enter(self._workspaces.open(role))
        except BaseException:
            child.close()
            raise

    def open_workspace(self) -> Workspace:
        """Return a workspace without a process; see `toolchains.Toolchain`."""
        return self._workspaces.open("files")

    def close(self) -> None:
        """End every waiting child."""
        with self._lock:
            self._closed.set()
            children = [child for role in ROLES for child in self._waiting[role]]
            self._waiting = {role: [] for role in ROLES}
        for child in children:
            child.close()

    def _pop_waiting(self, role: str) -> Child | None:
        with self._lock:
            living = self._remove_dead(role)
            child = next((child for child in living if child.warm), living[0] if living else None)
            if role in ROLES:
                self._waiting[role] = [other for other in living if other is not child]
        return child

    def _remove_dead(self, role: str) -> list[Child]:
        """Return the waiting children that are alive; close the others."""
        living = []
        for child in self._waiting.get(role, []):
            if child.alive:
                living.append(child)
            else:
                child.close()
        return living

    def _is_warm(self) -> bool:
        with self._lock:
            return all(
                sum(child.warm and child.alive for child in self._waiting[role]) >= self._spares
                for role in ROLES
            )

    def _fill(self) -> None:
        # Closing the pool ends the wait for the device.
        with self._filling, contextlib.suppress(WorkerLost), self._device.shared(self._closed):
            deadline = time.monotonic() + WARM_SECONDS
            try:
                for child in [child for role in ROLES for child in self._start_missing(role)]:
                    child.wait_warm(max(0.0, deadline - time.monotonic()))
            except (Pt2hubError, OSError) as error:  # the next build meets the error again and reports it
                _log.warning("cannot start child processes in advance", error=str(error))

    def _start_missing(self, role: str) -> list[Child]:
        new = []
        with self._lock:
            waiting = self._waiting[role] = self._remove_dead(role)
            while len(waiting) < self._spares and not self._closed.is_set():
                new.append(self._start(role, warm=True))
                waiting.append(new[-1])  # one by one, so that `close` ends those that did start
        return new

    def _start(self, role: str, *, warm: bool) -> Child:
        """Start a child; without a sandbox, one that is to wait gets its workspace later."""
        later = warm and self._launcher.inside is None
        workspace = None if later else self._workspaces.open(role)
        try:
            return Child(role, self._launcher, environ=self._environ, workspace=workspace)
        except BaseException:
            if workspace is not None:
                workspace.close()
            raise
