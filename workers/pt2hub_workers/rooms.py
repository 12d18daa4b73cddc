"""Rooms: the directories that children work in, and the one way in which files come out of them.

A room is empty when it is opened and gone when it is closed. Its child reads `in/`, writes `out/`, `tmp/` and
`cache/`, and never sees `held/`, where the worker keeps what it took. A compiled library holds its build path, so a
build's path is always the same: in the sandbox every child sees its room at one place; without one, rooms are slots.
Two jobs in one compiler cache mix their outputs (facts/aoti.md, section 5).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import secrets
import shutil
import stat
from pathlib import Path

from pt2hub.errors import BadConfiguration, OutputRefused

MAX_SLOTS = 64
"""Builds at a time in one scratch directory."""
WRITABLE = ("out", "tmp", "cache")
"""What the child may write."""
_PARTS = ("in", *WRITABLE, "held")
_NAME = re.compile(r"(in|out)/([A-Za-z0-9._-]{1,128})")
_NOT_PLAIN = (errno.ELOOP, errno.ENXIO)
"""What opening a symbolic link or a socket ends with."""
_LEFT = "left-"
_SHOWN = 120


class Room:
    """One child's directory.

    Attributes:
        host: Where it is, as the worker sees it.
        inside: Where it is, as the child sees it.
    """

    def __init__(self, host: Path, inside: Path, lock: _Lock) -> None:
        """Makes the directories; `Rooms.open` calls this.

        Args:
            host: Where there is nothing yet.
            inside: The child's view of it.
            lock: Held as long as the room is open.
        """
        self.host = host
        self.inside = inside
        self._lock = lock
        self._numbers = itertools.count()
        for part in _PARTS:
            (host / part).mkdir(parents=True)

    def incoming(self, name: str) -> Path:
        """Where the worker writes a file that the child only reads."""
        return self.host / "in" / name

    def seen(self, path: Path) -> str:
        """A path below `host` as the child sees it."""
        return str(self.inside / path.relative_to(self.host))

    def has(self, relative: str) -> bool:
        """Whether there is something under a name, as `take` is given it."""
        return os.path.lexists(self.host / relative)

    def take(self, relative: object) -> Path:
        """Takes a file that the child names, out of its reach.

        What it wrote is copied: a child that lives has the same bytes still open, and could have other ones proven
        than those that are published. What it only reads is linked.

        Args:
            relative: As `out/x` or `in/x`; whatever the child sent.

        Returns:
            The file's path in `held/`.

        Raises:
            OutputRefused: The name is none, there is nothing, or it is no plain file of one name.
            OSError: There is no space for the copy.
        """
        match = _NAME.fullmatch(relative) if isinstance(relative, str) else None
        if match is None or match[2] in (".", ".."):
            raise _refused(relative, "is no name of a file in its room")
        held = self.host / "held" / f"{next(self._numbers)}-{match[2]}"
        try:
            source = _opened(self.host / match[1], match[2])
        except OSError as error:
            what = "is no plain file" if error.errno in _NOT_PLAIN else f"cannot be taken: {error.strerror}"
            raise _refused(relative, what) from error
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                raise _refused(relative, "is no plain file")
            if match[1] == "in":
                os.link(self.host / match[0], held)
            elif status.st_nlink > 1:  # a copy of each name would be more than the child itself may write
                raise _refused(relative, "has another name as well")
            else:
                _copy(source, held)
        finally:
            os.close(source)
        return held

    def give(self, path: Path, name: str) -> Path:
        """Puts a file that was taken, from here or from another room, into `in/`; its bytes are not copied."""
        target = self.incoming(name)
        try:
            os.link(path, target)
        except OSError:  # another filesystem, or one without links
            shutil.copyfile(path, target)
        return target

    def close(self) -> None:
        """Removes the room, whatever the modes of what lies in it are, and lets others have its place."""
        with contextlib.suppress(OSError):  # who opens one next tries again
            _put_aside(self.host)
        self._lock.release()


class Rooms:
    """The rooms of a scratch directory, which several workers may share."""

    def __init__(self, scratch: Path, *, inside: Path | None) -> None:
        """Makes nothing yet.

        Args:
            scratch: Parent of all rooms, made with mode 0700.
            inside: Where a child in a sandbox sees its room; None without one: then rooms are slots.
        """
        self._scratch = scratch
        self._inside = inside

    def open(self, role: str = "build") -> Room:
        """An empty room.

        Args:
            role: Who works there; without a sandbox the first room of a role is always at the same path.

        Raises:
            BadConfiguration: The scratch directory belongs to someone else, cannot be made, or is full of builds.
        """
        prepare(self._scratch)
        _tidy(self._scratch)
        lock = self._slot(role) if self._inside is None else self._fresh(role)
        host = lock.path.with_suffix("")
        try:
            _put_aside(host)  # what a worker left that was killed
            return Room(host, self._inside or host, lock)
        except BaseException:
            lock.release()
            raise

    def _slot(self, role: str) -> _Lock:
        for number in range(MAX_SLOTS):
            if lock := _locked(self._scratch / f"{role}-{number}.lock"):
                return lock
        raise BadConfiguration(
            f"{MAX_SLOTS} builds run in {self._scratch} already",
            where="PT2HUB_SCRATCH",
            hint="Run fewer builds at a time on this machine, or give some workers another directory.",
        )

    def _fresh(self, role: str) -> _Lock:
        while True:
            if lock := _locked(self._scratch / f"{role}-{secrets.token_hex(8)}.lock"):
                return lock


def prepare(scratch: Path, *, setting: str = "PT2HUB_SCRATCH") -> None:
    """Makes the parent of all rooms; a worker that could not would fail every build it takes.

    Args:
        scratch: A directory that is to be this user's alone.
        setting: The variable that names it.

    Raises:
        BadConfiguration: It belongs to someone else or cannot be made.
    """
    try:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = scratch.stat(follow_symlinks=False).st_uid
    except OSError as error:
        raise BadConfiguration(
            f"{scratch} cannot be made: {error.strerror}",
            where=setting,
            hint="Name a directory of yours.",
        ) from error
    if owner != os.getuid() or scratch.is_symlink():
        raise BadConfiguration(
            f"{scratch} belongs to someone else", where=setting, hint="Name a directory of yours."
        )


class _Lock:
    """The lock of a room: a file beside it, which is gone with it, and which the kernel frees with its process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        self.path.unlink(missing_ok=True)
        # Unlocked and not only closed: a child that is just being started may still have a copy.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def _locked(path: Path, flags: int = os.O_CREAT) -> _Lock | None:
    """The lock, unless someone holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    lock = _Lock(path, descriptor)
    if os.fstat(descriptor).st_nlink:
        return lock
    os.close(descriptor)  # its holder removed it in between: the next one to come makes it anew
    return _locked(path, flags)


def _tidy(scratch: Path) -> None:
    """Removes the rooms of workers that were killed, and what could not be removed before."""
    for path in scratch.glob("*.lock"):
        if lock := _locked(path, flags=0):
            _put_aside(path.with_suffix(""))
            lock.release()
    for left in scratch.glob(f"{_LEFT}*"):
        _remove(left)


def _put_aside(room: Path) -> None:
    """Frees a room's path and removes what was there.

    Renamed first: a compiler that outlived its worker may still write there, so that removing it fails, and must not
    stand in the way of the next build. What cannot be removed now is tried again the next time.
    """
    left = _left(room.parent)
    with contextlib.suppress(FileNotFoundError):
        room.rename(left)
        _remove(left)


def _left(scratch: Path) -> Path:
    return scratch / f"{_LEFT}{secrets.token_hex(8)}"


def _remove(folder: Path) -> None:
    """Removes a directory, as far as it can be, however deep it is and whatever the modes in it are.

    Every directory is moved up before it is emptied: paths stay short, nothing recurses, and one that a child made
    unreadable, or ten thousand of them in each other, are removed as any other.
    """
    waiting = [folder]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
            waiting += _emptied(folder)
            folder.rmdir()


def _emptied(folder: Path) -> list[Path]:
    """Removes the files of a directory, and moves its directories up; where they are then."""
    moved = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    Path(entry.path).chmod(0o700)  # else it could not be moved
                    moved.append(Path(entry.path).rename(_left(folder.parent)))
                else:
                    Path(entry.path).unlink()
    return moved


def _opened(folder: Path, name: str) -> int:
    """A file of a folder, opened for reading; no link is followed, and no pipe waited for."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _copy(source: int, target: Path) -> None:
    """Copies an open file as long as it is now; holes stay holes, or a file of nothing else would fill the disk."""
    length, at = os.fstat(source).st_size, 0
    with target.open("xb", buffering=0) as copy:
        while at < length:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # there is only a hole left
            end = min(length, os.lseek(source, at, os.SEEK_HOLE))
            copy.seek(at)
            while at < end and (sent := os.sendfile(copy.fileno(), source, at, end - at)):
                at += sent
            if at < end:  # it was cut meanwhile
                break
        copy.truncate(length)


def _refused(named: object, why: str) -> OutputRefused:
    return OutputRefused(
        f"{str(named)[:_SHOWN]!r}, which the build's process names, {why}",
        where="out",
        hint="A model must leave the files of its build alone.",
    )
