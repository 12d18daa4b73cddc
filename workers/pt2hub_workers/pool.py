"""Children that wait for work, with torch imported."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import Pt2hubError, WorkerLost
from pt2hub_workers.children import Child

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.device import Device
    from pt2hub_workers.rooms import Room, Rooms
    from pt2hub_workers.sandbox import Launcher

ROLES = ("build", "gate")
"""What waits; a judge is started when it is needed, for it imports next to nothing."""
WARM_SECONDS = 120.0
"""How long the device is kept from those who measure while children import torch."""
PATIENT = {"GOMP_SPINCOUNT": "1000"}
"""How often a thread of OpenMP looks for work before it sleeps: GNU's own number for machines with more threads than
cores, which it cannot see where these are of several processes. Four processes that ran squeezenet1_1 on two cores took 31
ms for a call with it, and 2,000 ms with the usual 300,000 looks. Timings have it, too: with other work on the machine the
ratios of two builds spread by 17 % over 15 processes, and by 66 % without it."""
_log = structlog.get_logger()


class Pool:
    """Keeps children of each role warm.

    They are started in the background, while the device is shared: importing torch takes a core for seconds, and
    must disturb no timing. A sandboxed child waits in its room, for what it sees is fixed when it starts; one without
    a sandbox is given its room when it is taken, so that a build's path is that of a slot.
    """

    def __init__(
        self,
        launcher: Launcher,
        rooms: Rooms,
        environ: Mapping[str, str],
        *,
        device: Device,
        spares: int = 1,
    ) -> None:
        """Creates the pool; `refill` starts the children.

        Args:
            launcher: Starts them.
            rooms: Where they work.
            environ: Their environment.
            device: What measurements hold alone.
            spares: Children of each role to keep.
        """
        self._launcher = launcher
        self._rooms = rooms
        self._environ = {**PATIENT, **environ}
        self._device = device
        self._spares = spares
        self._waiting: dict[str, list[Child]] = {role: [] for role in ROLES}
        self._lock = threading.Lock()
        self._filling = threading.Lock()
        self._closed = threading.Event()

    def refill(self) -> None:
        """Starts what is missing, in the background."""
        threading.Thread(target=self._fill, daemon=True, name="refill").start()

    def wait_warm(self, seconds: float) -> bool:
        """Waits until as many children as should wait do, and are warm; returns whether they are."""
        deadline = time.monotonic() + seconds
        while not self._is_warm():
            if self._closed.wait(0.05) or time.monotonic() > deadline:
                return False
        return True

    def take(self, role: str) -> Child:
        """A child of a role, warm if one is there; it belongs to the caller, who shares the device and closes it.

        Raises:
            BadConfiguration: There can be no room for it.
            SandboxUnavailable: It cannot be confined.
        """
        child = self._waiting_child(role)
        if child is None:
            return self._start(role, warm=False)
        if self._launcher.inside is not None:
            return child
        try:
            return child.enter(self._rooms.open(role))
        except BaseException:
            child.close()
            raise

    def open_room(self) -> Room:
        """A room in which no process works; see `toolchains.Toolchain`."""
        return self._rooms.open("files")

    def close(self) -> None:
        """Ends every waiting child."""
        with self._lock:
            self._closed.set()
            children = [child for role in ROLES for child in self._waiting[role]]
            self._waiting = {role: [] for role in ROLES}
        for child in children:
            child.close()

    def _waiting_child(self, role: str) -> Child | None:
        with self._lock:
            living = self._living(role)
            child = next((child for child in living if child.warm), living[0] if living else None)
            if role in ROLES:
                self._waiting[role] = [other for other in living if other is not child]
        return child

    def _living(self, role: str) -> list[Child]:
        """Those that wait; one that died meanwhile is put away."""
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
        # The wait for the device ends with the pool.
        with self._filling, contextlib.suppress(WorkerLost), self._device.shared(self._closed):
            deadline = time.monotonic() + WARM_SECONDS
            try:
                for child in [child for role in ROLES for child in self._started(role)]:
                    child.wait_warm(max(0.0, deadline - time.monotonic()))
            except (Pt2hubError, OSError) as error:  # the build that needs one meets it again, and says so
                _log.warning("no children can wait for builds", error=str(error))

    def _started(self, role: str) -> list[Child]:
        new = []
        with self._lock:
            waiting = self._waiting[role] = self._living(role)
            while len(waiting) < self._spares and not self._closed.is_set():
                new.append(self._start(role, warm=True))
                waiting.append(new[-1])  # one by one: those that did start are ended with the others
        return new

    def _start(self, role: str, *, warm: bool) -> Child:
        """A new child, in its room unless it is to wait and may be given it later."""
        later = warm and self._launcher.inside is None
        room = None if later else self._rooms.open(role)
        try:
            return Child(role, self._launcher, environ=self._environ, room=room)
        except BaseException:
            if room is not None:
                room.close()
            raise
