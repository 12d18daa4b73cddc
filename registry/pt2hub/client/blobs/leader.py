"""Which process downloads a blob for all others of the machine.

The leader holds a lock on the blob's leader file, which the kernel releases when the process dies, and nobody ever waits for
that lock: the others look at the file a few times per second. It says how many bytes are there, and the leader touches it
every second, so a leader that was stopped is noticed as well; another process removes its file and leads with one of its
own (docs/architecture/downloads.md).
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from pt2hub.client.blobs.partial import LeadershipLost, try_lock
from pt2hub.wire.problems import from_dict

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.errors import TransientError

STALL_SECONDS = 15.0
"""How long a leader may give no sign of life before another process takes over."""
BEAT_SECONDS = 1.0
MAX_FAILURES = 2
"""Leaders that fail in a row before those who waited fail too: the next one may reach a server that the first did not."""
_RECENT_SECONDS = 60.0
_MAX_BYTES = 1 << 16
_MODE = 0o600


class Leader:
    """The leadership of this process over one download.

    Attributes:
        exclusive: Whether there is one leader at a time; a file system without locks lets every process download.

    Args:
        state: What others read in the file.
        descriptor: The locked file.
    """

    def __init__(self, path: Path, descriptor: int, state: dict[str, Any], *, exclusive: bool = True) -> None:
        self.exclusive = exclusive
        self._path = path
        self._descriptor = descriptor
        self._state = state
        self._longest = os.fstat(descriptor).st_size  # overwritten: ext4 writes to disk what was truncated
        self._beaten = 0.0
        self._begun: int | None = None
        self._write()

    def beat(self, received: int) -> None:
        """Tell others that this process lives; call it often.

        Args:
            received: Bytes of the blob that are there.

        Raises:
            LeadershipLost: Another process took over.
        """
        self._begun = received if self._begun is None else self._begun
        if received > self._begun:
            self._state["failures"] = 0  # what failed before works now
        if time.monotonic() - self._beaten < BEAT_SECONDS:
            return
        if self.exclusive and not _is_at(self._path, self._descriptor):
            raise LeadershipLost
        self._state["received"] = received
        self._write()

    def fail(self, error: TransientError) -> None:
        """Leave the reason for those who waited."""
        self._state["failures"] += 1
        self._state["error"] = error.as_dict()
        self._write()

    def release(self) -> None:
        """End the leadership; the file stays if it has a reason of failure."""
        if "error" not in self._state and _is_at(self._path, self._descriptor):
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _write(self) -> None:
        text = json.dumps(self._state).encode()[:_MAX_BYTES]
        self._longest = max(self._longest, len(text))
        with suppress(OSError):  # a full disk: then others see no sign of life, and may take over
            os.pwrite(self._descriptor, text.ljust(self._longest), 0)
        self._beaten = time.monotonic()


class Election:
    """Attempts of one process to lead a download, or to see how the leader does.

    Attributes:
        received: Bytes that the leader has, as far as it said.

    Args:
        path: The leader file.
        server: Address of the server; failures with another one are not shared.
    """

    def __init__(self, path: Path, server: str) -> None:
        self.received = 0
        self._path = path
        self._server = server
        self._seen: tuple[int, int] | None = None  # inode and time of the leader's last sign of life
        self._since = time.monotonic()

    def try_lead(self) -> Leader | None:
        """Become the leader if there is none, or if it gives no sign of life; return None while another one leads.

        Raises:
            TransientError: Those who led while this process waited failed.
            OSError: The file cannot be written.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _MODE)
        try:
            locked = _lock_if_possible(descriptor)
            if locked is False:
                self._observe(descriptor)
            elif _is_at(self._path, descriptor):
                return self._lead(descriptor, exclusive=locked is True)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def _lead(self, descriptor: int, *, exclusive: bool) -> Leader:
        failures = self._count_failures(descriptor)
        state = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "server": self._server,
            "received": 0,
            "failures": failures,
        }
        return Leader(self._path, descriptor, state, exclusive=exclusive)

    def _count_failures(self, descriptor: int) -> int:
        """Return how many leaders failed in a row; raise the last one's error if this process waited for it."""
        state, status = _read(descriptor), os.fstat(descriptor)
        if state.get("server") != self._server or "error" not in state:
            return 0
        failures = int(state["failures"])
        if self._seen and self._seen[0] == status.st_ino and failures >= MAX_FAILURES:
            raise from_dict(state["error"])
        return failures if time.time() - status.st_mtime < _RECENT_SECONDS else 0

    def _observe(self, descriptor: int) -> None:
        """Look at the leader; remove its file if it gave no sign of life for too long."""
        status, now = os.fstat(descriptor), time.monotonic()
        sign = status.st_ino, status.st_mtime_ns
        if sign != self._seen:
            self._seen, self._since = sign, now
        self.received = int(_read(descriptor).get("received", self.received))
        if now - self._since > STALL_SECONDS and _is_at(self._path, descriptor):
            self._path.unlink(missing_ok=True)


def _lock_if_possible(descriptor: int) -> bool | None:
    """Return whether the file is locked now; None on a file system without locks."""
    try:
        return try_lock(descriptor)
    except OSError:
        return None


def _read(descriptor: int) -> dict[str, Any]:
    """Return what a leader wrote; empty if it is writing just now, or a file of others is there."""
    try:
        state = json.loads(os.pread(descriptor, _MAX_BYTES, 0))
    except ValueError:
        return {}
    known = isinstance(state, dict) and isinstance(state.get("failures"), int)
    return state if known and isinstance(state.get("error", {}), dict) else {}


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether a path still leads to an open file."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))
