"""Device lock: shared by builds on a machine, exclusive for timings.

Two builds at a time make every timing wrong by a factor. So timings hold the device exclusively, against every slot of
every worker process on the machine; all other work shares it. A build's autotuning waits for its turn; a benchmark
takes the device only when it is free, one timed block at a time. The locks are the kernel's (flock), which releases
those of a killed process. A stopped process (Ctrl-Z, SIGSTOP) keeps them, but loses its builds and the device after
the heartbeat timeout.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import structlog

from pt2hub.errors import BadConfiguration, WorkerLost
from pt2hub_workers.operations.lock_holders import describe, holders, is_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Mode = Literal["shared", "exclusive"]

POLL_SECONDS = 0.02
"""Interval of attempts to lock: a blocking flock could not be cancelled."""
POLLS_PER_CHECK = 50
"""Polls between two checks of the holders: about once a second."""
STOPPED_CHECKS = 20
"""Consecutive checks that find all holders stopped, after which they count as lost and their device as free. Checks
rather than seconds, because the waiting process may have been stopped as well."""
_MODE_FOR_ALL = 0o666
_log = structlog.get_logger()


class CancellationCheck(Protocol):
    """Stop signal, such as a `CancellationToken` or a `threading.Event`."""

    def is_set(self) -> bool:
        """Return whether the signal is set."""

    def wait(self, seconds: float, /) -> bool:
        """Wait for the signal; return whether it is set."""


def device_path(device: str) -> Path:
    """Return the path of a device's lock, which is the same for all workers and users of the machine.

    Args:
        device: `cpu`, or the GPU's UUID.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "-", device)
    return Path(tempfile.gettempdir()) / f"pt2hub-device-{name}.lock"


class DeviceLock:
    """Lock of a device of this machine.

    Args:
        path: File of the lock; a second one in the same directory is its turnstile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turnstile = path.with_name(f"{path.name}.turn")
        for file in (self._path, self._turnstile):
            os.close(_open_lock_file(file))

    @contextlib.contextmanager
    def shared(
        self,
        token: CancellationCheck,
        on_wait: Callable[[str], object] | None = None,
        *,
        yields: bool = False,
    ) -> Iterator[LockHold]:
        """Hold the device, shared with others.

        Args:
            on_wait: Called with the users of the device when waiting, and again when they change.
            yields: Whether waiting processes go first when this hold becomes exclusive.

        Raises:
            WorkerLost: The token was set first.
        """
        with self._held("shared", token, on_wait, yields=yields) as hold:
            yield hold

    @contextlib.contextmanager
    def exclusive(
        self, token: CancellationCheck, on_wait: Callable[[str], object] | None = None
    ) -> Iterator[LockHold]:
        """Hold the device exclusively.

        Args:
            on_wait: Called with the users of the device when waiting, and again when they change.

        Raises:
            WorkerLost: The token was set first.
        """
        with self._held("exclusive", token, on_wait) as hold:
            yield hold

    @contextlib.contextmanager
    def _held(
        self,
        mode: Mode,
        token: CancellationCheck,
        on_wait: Callable[[str], object] | None,
        *,
        yields: bool = False,
    ) -> Iterator[LockHold]:
        hold = LockHold(self._path, self._turnstile, token, yields=yields)
        try:
            hold.become(mode, on_wait)
            yield hold
        finally:
            hold.release()


class LockHold:
    """Hold of a device by one attempt: none, shared or exclusive.

    An exclusive hold locks the turnstile first and keeps it, so that no new holder enters while the present ones leave.
    A shared hold only passes through. No hold waits while it has what others wait for: a change of mode releases the
    device before it locks it again.

    A yielding hold never waits at the turnstile: it takes the device exclusively at a moment when no other process has
    it or waits for it. So between two of its blocks, everything that arrived during the first gets the device.

    Args:
        turnstile: File of the turnstile.
        yields: Whether waiting processes go first when this hold becomes exclusive.
    """

    def __init__(
        self, path: Path, turnstile: Path, token: CancellationCheck, *, yields: bool = False
    ) -> None:
        self._yields = yields
        self._path = path
        self._turnstile = turnstile
        self._token = token
        self._locks: list[int] = []
        self._mode: Mode | None = None

    @property
    def mode(self) -> Mode | None:
        """Present mode; None without the device."""
        return self._mode

    def become(self, mode: Mode, on_wait: Callable[[str], object] | None = None) -> None:
        """Change the mode; other attempts may get the device in between.

        Args:
            mode: `shared` or `exclusive`; the present one changes nothing.
            on_wait: Called with the users of the device when waiting, and again when they change.

        Raises:
            WorkerLost: The token was set first; nothing is held.
        """
        if mode == self._mode:
            return
        self.release()
        operation = fcntl.LOCK_SH if mode == "shared" else fcntl.LOCK_EX
        wait = _Wait(self._token, on_wait)
        if self._yields and mode == "exclusive":
            self._locks.append(_lock_when_free(self._path, self._turnstile, wait))
            self._mode = mode
            return
        try:
            self._locks.append(_lock(self._turnstile, operation, wait))
            self._locks.append(_lock(self._path, operation, wait))
        except BaseException:
            self.release()
            raise
        if mode == "shared":
            _unlock(self._locks.pop(0))
        self._mode = mode

    def release(self) -> None:
        """Release the device."""
        self._mode = None
        while self._locks:  # the turnstile last: the device is free for the next one through
            _unlock(self._locks.pop())


class _Wait:
    """Wait for a lock that ends with a cancellation or when all holders are stopped."""

    def __init__(self, token: CancellationCheck, on_wait: Callable[[str], object] | None) -> None:
        self._token = token
        self._on_wait = on_wait
        self._reported = ""
        self._polls = 0
        self._still = 0

    def check(self) -> None:
        if self._token.is_set():
            raise _cancelled_error()

    def once(self, descriptor: int) -> bool:
        """Wait a moment; return whether all holders are stopped for good."""
        if self._token.wait(POLL_SECONDS):
            raise _cancelled_error()
        self._polls += 1
        return self._polls % POLLS_PER_CHECK == 1 and self._check_holders(descriptor)

    def _check_holders(self, descriptor: int) -> bool:
        found = holders(descriptor)
        self._still = self._still + 1 if found and all(map(is_stopped, found)) else 0
        before, self._reported = self._reported, describe(found)
        if self._on_wait is not None and before != self._reported:
            self._on_wait(self._reported)
        if self._still < STOPPED_CHECKS:
            return False
        _log.warning("taking the device from stopped processes", processes=found)
        return True


def _cancelled_error() -> WorkerLost:
    return WorkerLost("the attempt was cancelled while it waited for the device", where="device")


def _lock(path: Path, operation: int, wait: _Wait) -> int:
    while True:
        wait.check()
        descriptor = _open_lock_file(path)
        try:
            if _wait_for_lock(descriptor, path, operation, wait):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        _unlock(descriptor)


def _lock_when_free(path: Path, turnstile: Path, wait: _Wait) -> int:
    """Lock a file exclusively at a moment when no other process has it or waits at its turnstile."""
    while True:
        wait.check()
        turn = _try_exclusive(turnstile)
        if turn is None:
            _wait_at(turnstile, wait)
            continue
        try:
            descriptor = _try_exclusive(path)
        finally:
            _unlock(turn)
        if descriptor is not None:
            return descriptor
        _wait_at(path, wait)


def _try_exclusive(path: Path) -> int | None:
    """Lock a file exclusively if it is free; else return None."""
    descriptor = _open_lock_file(path)
    if _try_lock(descriptor, fcntl.LOCK_EX) and _is_current(path, descriptor):
        return descriptor
    _unlock(descriptor)
    return None


def _wait_at(path: Path, wait: _Wait) -> None:
    descriptor = _open_lock_file(path)
    try:
        if wait.once(descriptor):
            with contextlib.suppress(OSError):  # as in `_wait_for_lock`
                path.unlink()
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, path: Path, operation: int, wait: _Wait) -> bool:
    """Wait for a lock; return False if its path names another file by now, which is the one to lock."""
    while not _try_lock(descriptor, operation):
        in_vain = wait.once(descriptor)
        if not _is_current(path, descriptor):
            return False
        if in_vain:
            with contextlib.suppress(OSError):  # another user's file in a sticky directory
                path.unlink()
    return _is_current(path, descriptor)


def _is_current(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    return False


def _try_lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    # Unlocked and not only closed: a child that is just being started may still have a copy.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _open_lock_file(path: Path) -> int:
    """Open a lock's file for flock, which needs no write permission; create it for all users if missing."""
    try:
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                return _regular(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), path)
            _make(path)
        raise FileNotFoundError(2, "removed as soon as it was created")
    except OSError as error:
        raise BadConfiguration(
            f"cannot use the device's lock: {error.strerror}",
            where=str(path),
            hint="All workers of a machine share this file. Delete it while no worker is running; the next one creates it "
            "again, for all users.",
        ) from error


def _regular(descriptor: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        with contextlib.suppress(OSError):
            os.utime(descriptor)  # so that no cleaner of old files removes it in use
        return descriptor
    os.close(descriptor)
    raise BadConfiguration("the device's lock must be a regular file", where=str(path), hint="Delete it.")


def _make(path: Path) -> None:
    # Linked into place once all users may read it: another user's worker may start at any moment. Opening with
    # O_CREAT would fail for them, because Linux protects other users' files in sticky directories.
    own = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(own, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE_FOR_ALL)
    try:
        os.fchmod(descriptor, _MODE_FOR_ALL)
        with contextlib.suppress(FileExistsError):
            os.link(own, path)
    finally:
        os.close(descriptor)
        own.unlink(missing_ok=True)
