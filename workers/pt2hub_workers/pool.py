"""Children that wait for work, with torch imported."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from pt2hub.errors import WorkerLost
from pt2hub_workers.children import Child

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.device import Device

ROLES = ("build", "gate")
WARM_SECONDS = 120.0
"""How long the device is kept from those who measure while children import torch."""


class Pool:
    """Keeps children of each role warm.

    They are started in the background, while the device is shared: importing torch takes a core for seconds, and
    must disturb no timing.
    """

    def __init__(self, environ: Mapping[str, str], *, device: Device, spares: int = 1) -> None:
        """Creates the pool; `refill` starts the children.

        Args:
            environ: Their environment.
            device: What measurements hold alone.
            spares: Children of each role to keep.
        """
        self._environ = dict(environ)
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
        """A child of a role, warm if one is there; it belongs to the caller, who shares the device."""
        with self._lock:
            living = [child for child in self._waiting[role] if child.alive]
            child = next((child for child in living if child.warm), living[0] if living else None)
            self._waiting[role] = [other for other in living if other is not child]
        return child or Child(role, self._environ)

    def close(self) -> None:
        """Ends every waiting child."""
        with self._lock:
            self._closed.set()
            children = [child for role in ROLES for child in self._waiting[role]]
            self._waiting = {role: [] for role in ROLES}
        for child in children:
            child.kill()

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
            for child in [child for role in ROLES for child in self._started(role)]:
                child.wait_warm(max(0.0, deadline - time.monotonic()))

    def _started(self, role: str) -> list[Child]:
        with self._lock:
            kept = [child for child in self._waiting[role] if child.alive]
            missing = 0 if self._closed.is_set() else self._spares - len(kept)
            new = [Child(role, self._environ) for _ in range(missing)]
            self._waiting[role] = kept + new
        return new
