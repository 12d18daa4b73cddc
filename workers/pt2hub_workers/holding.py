"""What an attempt has of the device, and what its owner reads while it waits for it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pt2hub.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub_workers.device import Device, Hold, Mode
    from pt2hub_workers.halting import Halt


class Holding:
    """An attempt's share of a device, or all of it.

    Attributes:
        waited: Seconds that were spent waiting for it so far.
    """

    def __init__(
        self,
        device: Device,
        halt: Halt,
        tell: Callable[[str], object],
        on_waited: Callable[[float], object],
        *,
        yields: bool = False,
    ) -> None:
        """Holds nothing yet.

        Args:
            device: What timings hold alone.
            halt: Ends every wait.
            tell: Told a line where it has to wait, and how long it took.
            on_waited: Told the seconds of each wait.
            yields: Whether others who wait for the device go first, where it is to be held alone.
        """
        self.waited = 0.0
        self._device = device
        self._halt = halt
        self._tell = tell
        self._on_waited = on_waited
        self._yields = yields
        self._hold: Hold | None = None
        self._since: float | None = None

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the device beside others; whatever mode it is in, it is given up at the end.

        Raises:
            WorkerLost: The halt came first.
        """
        began = time.monotonic()
        with self._device.shared(self._halt, self._say_waiting, yields=self._yields) as self._hold:
            self._note(began)
            yield
        self._hold = None

    def become(self, mode: Mode) -> None:
        """Holds the device in another mode; others may have had it in between.

        Raises:
            WorkerLost: The halt came first.
        """
        if self._hold is None:
            raise InternalError("the attempt holds no device", where="device")
        if mode == self._hold.mode:
            return
        began = time.monotonic()
        self._hold.become(mode, self._say_waiting)
        self._note(began)

    def _say_waiting(self, whom: str) -> None:
        self._since = self._since or time.monotonic()
        self._tell(f"waits for the device: {whom}")

    def _note(self, began: float) -> None:
        """Note a wait that is over; taking a lock that is free is none."""
        seconds = time.monotonic() - began
        self.waited += seconds
        if self._since is not None:
            self._since = None
            self._on_waited(seconds)
            self._tell(f"waited {seconds:.1f} s for the device")
