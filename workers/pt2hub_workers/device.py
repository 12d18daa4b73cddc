"""The device that builds on a machine share, and that timings hold alone.

Two builds beside each other make every timing wrong by a factor. So whatever is timed holds the device
exclusively, against every slot of every worker process of the machine; all other work shares it. A build's autotuning
waits its turn; a benchmark takes the device only when it is free, one timed block at a time. The locks are
the kernel's (flock): those of a killed process are gone with it. A process that is stopped (Ctrl-Z, SIGSTOP) keeps
them; its builds are taken from it after a while, and so is the device.
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
from pt2hub_workers.holders import described, holders, is_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Mode = Literal["shared", "exclusive"]

POLL_SECONDS = 0.02
"""Between two tries at a lock that is held: a blocking flock could not be called off."""
POLLS_PER_LOOK = 50
"""Once a second a waiting process looks who it waits for."""
STOPPED_LOOKS = 20
"""So many looks in a row at processes that are all stopped: they count as lost workers by then, and their device as
free. Looks and not seconds: who waits may have been stopped together with them."""
_FOR_ALL = 0o666
_log = structlog.get_logger()


class Halting(Protocol):
    """A signal to stop, such as an attempt's `Halt` or a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether it was given."""

    def wait(self, seconds: float, /) -> bool:
        """Waits for it; returns whether it was given."""


def device_path(device: str) -> Path:
    """Where every worker of the machine finds a device's lock, whoever runs it.

    Args:
        device: `cpu`, or the GPU's UUID.
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "-", device)
    return Path(tempfile.gettempdir()) / f"pt2hub-device-{name}.lock"


class Device:
    """A device of this machine."""

    def __init__(self, path: Path) -> None:
        """Makes the lock's files where they are missing, so that a worker that cannot use them never starts.

        Args:
            path: The lock's file; a second one, its turnstile, stands beside it.

        Raises:
            BadConfiguration: They cannot be opened.
        """
        self._path = path
        self._turnstile = path.with_name(f"{path.name}.turn")
        for file in (self._path, self._turnstile):
            os.close(_opened(file))

    @contextlib.contextmanager
    def shared(
        self, halt: Halting, on_wait: Callable[[str], object] | None = None, *, yields: bool = False
    ) -> Iterator[Hold]:
        """Holds the device beside others.

        Args:
            halt: Ends the wait.
            on_wait: Called if it has to wait, with who uses the device; again where that changes.
            yields: Whether the holder, where it becomes the only one, lets everybody go first who waits.

        Raises:
            WorkerLost: The halt came first.
        """
        with self._held("shared", halt, on_wait, yields=yields) as hold:
            yield hold

    @contextlib.contextmanager
    def exclusive(self, halt: Halting, on_wait: Callable[[str], object] | None = None) -> Iterator[Hold]:
        """Holds the device alone.

        Args:
            halt: Ends the wait.
            on_wait: Called if it has to wait, with who uses the device; again where that changes.

        Raises:
            WorkerLost: The halt came first.
        """
        with self._held("exclusive", halt, on_wait) as hold:
            yield hold

    @contextlib.contextmanager
    def _held(
        self, mode: Mode, halt: Halting, on_wait: Callable[[str], object] | None, *, yields: bool = False
    ) -> Iterator[Hold]:
        hold = Hold(self._path, self._turnstile, halt, yields=yields)
        try:
            hold.become(mode, on_wait)
            yield hold
        finally:
            hold.release()


class Hold:
    """What one attempt has of a device: nothing, a share, or all of it.

    Who wants all of it passes the turnstile first and keeps it, so that nobody new comes in while those inside
    leave one by one. Those who share only pass through. Nobody waits while holding what others wait for: a change
    from one mode to the other gives up the first before it asks for the second.

    Who yields never waits at the turnstile: it takes all of the device in a moment in which nobody has any of it, nor
    waits for it. So between two of its blocks everybody gets in who came during the first.
    """

    def __init__(self, path: Path, turnstile: Path, halt: Halting, *, yields: bool = False) -> None:
        """Holds nothing yet.

        Args:
            path: The lock's file.
            turnstile: The file of the turnstile before it.
            halt: Ends every wait.
            yields: Whether it lets everybody go first who waits, where it wants all of the device.
        """
        self._yields = yields
        self._path = path
        self._turnstile = turnstile
        self._halt = halt
        self._locks: list[int] = []
        self._mode: Mode | None = None

    @property
    def mode(self) -> Mode | None:
        """How the device is held now; None where it is not."""
        return self._mode

    def become(self, mode: Mode, on_wait: Callable[[str], object] | None = None) -> None:
        """Holds the device in another mode; others may have had it in between.

        Args:
            mode: `shared` or `exclusive`; the present one changes nothing.
            on_wait: Called if it has to wait, with who uses the device; again where that changes.

        Raises:
            WorkerLost: The halt came first; nothing is held.
        """
        if mode == self._mode:
            return
        self.release()
        operation = fcntl.LOCK_SH if mode == "shared" else fcntl.LOCK_EX
        wait = _Wait(self._halt, on_wait)
        if self._yields and mode == "exclusive":
            self._locks.append(_locked_when_free(self._path, self._turnstile, wait))
            self._mode = mode
            return
        try:
            self._locks.append(_locked(self._turnstile, operation, wait))
            self._locks.append(_locked(self._path, operation, wait))
        except BaseException:
            self.release()
            raise
        if mode == "shared":
            _unlock(self._locks.pop(0))
        self._mode = mode

    def release(self) -> None:
        """Gives the device up."""
        self._mode = None
        while self._locks:  # the turnstile last: who passes it finds the device free
            _unlock(self._locks.pop())


class _Wait:
    """Patience that ends with a halt, or with holders that do nothing any more."""

    def __init__(self, halt: Halting, on_wait: Callable[[str], object] | None) -> None:
        self._halt = halt
        self._on_wait = on_wait
        self._told = ""
        self._polls = 0
        self._still = 0

    def check(self) -> None:
        if self._halt.is_set():
            raise _halted()

    def once(self, descriptor: int) -> bool:
        """Waits a moment; returns whether it is in vain."""
        if self._halt.wait(POLL_SECONDS):
            raise _halted()
        self._polls += 1
        return self._polls % POLLS_PER_LOOK == 1 and self._look(descriptor)

    def _look(self, descriptor: int) -> bool:
        found = holders(descriptor)
        self._still = self._still + 1 if found and all(map(is_stopped, found)) else 0
        told, self._told = self._told, described(found)
        if self._on_wait is not None and told != self._told:
            self._on_wait(self._told)
        if self._still < STOPPED_LOOKS:
            return False
        _log.warning("the device is taken from stopped processes", processes=found)
        return True


def _halted() -> WorkerLost:
    return WorkerLost("the attempt was stopped while it waited for the device", where="device")


def _locked(path: Path, operation: int, wait: _Wait) -> int:
    while True:
        wait.check()
        descriptor = _opened(path)
        try:
            if _taken(descriptor, path, operation, wait):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        _unlock(descriptor)


def _locked_when_free(path: Path, turnstile: Path, wait: _Wait) -> int:
    """Locks a file alone in a moment in which nobody has it, and nobody is at the turnstile before it."""
    while True:
        wait.check()
        gate = _tried_at(turnstile)
        if gate is None:
            _wait_at(turnstile, wait)
            continue
        try:
            descriptor = _tried_at(path)
        finally:
            _unlock(gate)
        if descriptor is not None:
            return descriptor
        _wait_at(path, wait)


def _tried_at(path: Path) -> int | None:
    """Locks a file alone if nobody has it."""
    descriptor = _opened(path)
    if _tried(descriptor, fcntl.LOCK_EX) and _is_at(path, descriptor):
        return descriptor
    _unlock(descriptor)
    return None


def _wait_at(path: Path, wait: _Wait) -> None:
    descriptor = _opened(path)
    try:
        if wait.once(descriptor):
            with contextlib.suppress(OSError):  # as in `_taken`
                path.unlink()
    finally:
        os.close(descriptor)


def _taken(descriptor: int, path: Path, operation: int, wait: _Wait) -> bool:
    """Waits for a lock; returns False where its path names another file by now, which is the one to lock."""
    while not _tried(descriptor, operation):
        in_vain = wait.once(descriptor)
        if not _is_at(path, descriptor):
            return False
        if in_vain:
            with contextlib.suppress(OSError):  # another user's, in a folder where only they may remove it
                path.unlink()
    return _is_at(path, descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    return False


def _tried(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    # Unlocked and not only closed: a child that is just being started may still have a copy.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _opened(path: Path) -> int:
    """Opens a lock's file for flock, which needs no right to write; made for everyone where it is missing."""
    try:
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                return _plain(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), path)
            _make(path)
        raise FileNotFoundError(2, "removed as soon as it is made")
    except OSError as error:
        raise BadConfiguration(
            f"the device's lock cannot be used: {error.strerror}",
            where=str(path),
            hint="Every worker of a machine shares this file, whoever runs it. Delete it while no worker runs; the "
            "next one makes it again, for everyone.",
        ) from error


def _plain(descriptor: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        with contextlib.suppress(OSError):
            os.utime(descriptor)  # what clears old files away must not make two locks out of one
        return descriptor
    os.close(descriptor)
    raise BadConfiguration("the device's lock is no plain file", where=str(path), hint="Delete it.")


def _make(path: Path) -> None:
    # Linked into place when everyone may read it: another user's worker may come at any moment. Opening with
    # O_CREAT would fail for them, since Linux protects other users' files in sticky directories from that.
    own = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(own, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FOR_ALL)
    try:
        os.fchmod(descriptor, _FOR_ALL)
        with contextlib.suppress(FileExistsError):
            os.link(own, path)
    finally:
        os.close(descriptor)
        own.unlink(missing_ok=True)
