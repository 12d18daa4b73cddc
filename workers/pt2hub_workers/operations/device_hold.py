"""Device hold of an attempt, with the log lines of its waits."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pt2hub.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.operations.device_lock import DeviceLock, LockHold, Mode


class DeviceHold:
    """An attempt's shared or exclusive hold of a device.

    Attributes:
        waited: Seconds spent waiting for the device so far.

    Args:
        yields: Whether waiting attempts go first when this one wants the device exclusively.
    """

    def __init__(
        self,
        device: DeviceLock,
        token: CancellationToken,
        on_detail: Callable[[str], object],
        on_waited: Callable[[float], object],
        *,
        yields: bool = False,
    ) -> None:
        self.waited = 0.0
        self._device = device
        self._token = token
        self._report_detail = on_detail
        self._on_waited = on_waited
        self._yields = yields
        self._hold: LockHold | None = None
        self._since: float | None = None

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the device, shared at first; release it in any mode at the end."""
        began = time.monotonic()
        with self._device.shared(self._token, self._say_waiting, yields=self._yields) as self._hold:
            self._note(began)
            yield
        self._hold = None

    def become(self, mode: Mode) -> None:
        """Change the mode; other attempts may get the device in between."""
        if self._hold is None:
            raise InternalError("the attempt does not hold the device", where="device")
        if mode == self._hold.mode:
            return
        began = time.monotonic()
        self._hold.become(mode, self._say_waiting)
        self._note(began)

    def _say_waiting(self, whom: str) -> None:
        self._since = self._since or time.monotonic()
        self._report_detail(f"waiting for the device: {whom}")

    def _note(self, began: float) -> None:
        """Record the end of a wait, unless the device was free."""
        seconds = time.monotonic() - began
        self.waited += seconds
        if self._since is not None:
            self._since = None
            self._on_waited(seconds)
            self._report_detail(f"waited {seconds:.1f} s for the device")
