"""Workspaces: the scratch directories of child processes, and the only way in which files leave them.

A workspace is empty when it is opened and removed when it is closed. Its child reads `in/`, writes `out/`, `tmp/` and
`cache/`, and never sees `held/`, where the worker keeps the files that it took. A compiled library contains its build
path, so that path is always the same: in the sandbox every child sees its workspace at one path; without a sandbox,
workspaces are numbered slots. Two jobs in one compiler cache would mix their outputs
(docs/facts/aoti.md#one-cache-for-each-build).
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
"""Directories that the child may write."""
_PARTS = ("in", *WRITABLE, "held")
_NAME = re.compile(r"(in|out)/([A-Za-z0-9._-]{1,128})")
_NOT_PLAIN = (errno.ELOOP, errno.ENXIO)
"""Errors of opening a symbolic link or a socket."""
_LEFT = "left-"
_SHOWN = 120


class Workspace:
    """Scratch directory of a child process."""

    def __init__(self, host: Path, inside: Path, lock: _Lock) -> None:
        self.host = host
        self.inside = inside
        self._lock = lock
        self._numbers = itertools.count()
        for part in _PARTS:
            (host / part).mkdir(parents=True)

    def incoming(self, name: str) -> Path:
        """Return the path of a file that the worker writes and the child only reads."""
        return self.host / "in" / name

    def seen(self, path: Path) -> str:
        """Return a path below `host` as the child sees it."""
        return str(self.inside / path.relative_to(self.host))

    def has(self, relative: str) -> bool:
        """Return whether a file exists, by its relative path as for `take`."""
        return os.path.lexists(self.host / relative)

    def take(self, relative: object) -> Path:
        """Move a file that the child names out of its reach; return its new path.

        Files that the child wrote are copied: it may have them open, and could change them between verification and
        publication. Files that it only reads are linked.

        Args:
            relative: `out/x` or `in/x`, untrusted.

        Raises:
            OutputRefused: The name is invalid, or not that of a regular file with a single link.
            OSError: There is no space for the copy.
        """
        match = _NAME.fullmatch(relative) if isinstance(relative, str) else None
        if match is None or match[2] in (".", ".."):
            raise _output_refused(relative, "is not a valid file name in its workspace")
        held = self.host / "held" / f"{next(self._numbers)}-{match[2]}"
        try:
            source = _open(self.host / match[1], match[2])
        except OSError as error:
            what = (
                "is not a regular file" if error.errno in _NOT_PLAIN else f"cannot be read: {error.strerror}"
            )
            raise _output_refused(relative, what) from error
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                raise _output_refused(relative, "is not a regular file")
            if match[1] == "in":
                os.link(self.host / match[0], held)
            elif status.st_nlink > 1:  # copies of all its names could exceed the disk limit
                raise _output_refused(relative, "has more than one hard link")
            else:
                _copy(source, held)
        finally:
            os.close(source)
        return held

    def give(self, path: Path, name: str) -> Path:
        """Link a file of this or another workspace into `in/`, or copy it if it cannot be linked."""
        target = self.incoming(name)
        try:
            os.link(path, target)
        except OSError:  # another filesystem, or one without links
            shutil.copyfile(path, target)
        return target

    def close(self) -> None:
        """Remove the workspace, whatever its files' modes, and release its path."""
        with contextlib.suppress(OSError):  # opening the next one tries again
            _discard(self.host)
        self._lock.release()


class Workspaces:
    """Workspaces of a scratch directory, which several workers may share.

    Args:
        scratch: Parent of all workspaces, created with mode 0700.
        inside: Path of the workspace as a sandboxed child sees it; None without a sandbox.
    """

    def __init__(self, scratch: Path, *, inside: Path | None) -> None:
        self._scratch = scratch
        self._inside = inside

    def open(self, role: str = "build") -> Workspace:
        """Open an empty workspace.

        Raises:
            BadConfiguration: The scratch directory has another owner, cannot be created, or all its slots are busy.
        """
        prepare(self._scratch)
        _remove_abandoned(self._scratch)
        lock = self._slot(role) if self._inside is None else self._fresh(role)
        host = lock.path.with_suffix("")
        try:
            _discard(host)  # left by a killed worker
            return Workspace(host, self._inside or host, lock)
        except BaseException:
            lock.release()
            raise

    def _slot(self, role: str) -> _Lock:
        for number in range(MAX_SLOTS):
            if lock := _try_lock(self._scratch / f"{role}-{number}.lock"):
                return lock
        raise BadConfiguration(
            f"all {MAX_SLOTS} slots of {self._scratch} are busy",
            where="PT2HUB_SCRATCH",
            hint="Run fewer builds at a time on this machine, or set another directory for some workers.",
        )

    def _fresh(self, role: str) -> _Lock:
        while True:
            if lock := _try_lock(self._scratch / f"{role}-{secrets.token_hex(8)}.lock"):
                return lock


def prepare(scratch: Path, *, setting: str = "PT2HUB_SCRATCH") -> None:
    """Create the parent of all workspaces, and check its owner."""
    try:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = scratch.stat(follow_symlinks=False).st_uid
    except OSError as error:
        raise BadConfiguration(
            f"cannot create {scratch}: {error.strerror}",
            where=setting,
            hint="Set a directory that you own.",
        ) from error
    if owner != os.getuid() or scratch.is_symlink():
        raise BadConfiguration(
            f"{scratch} belongs to another user", where=setting, hint="Set a directory that you own."
        )


class _Lock:
    """Lock of a workspace: a file next to it, removed with it, and unlocked by the kernel with its process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        self.path.unlink(missing_ok=True)
        # Unlocked and not only closed: a child that is just starting may still have a copy.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def _try_lock(path: Path, flags: int = os.O_CREAT) -> _Lock | None:
    """Lock a file; return None if it is locked already."""
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
    os.close(descriptor)  # its holder removed it in between
    return _try_lock(path, flags)


def _remove_abandoned(scratch: Path) -> None:
    """Remove the workspaces of killed workers, and leftovers that could not be removed before."""
    for path in scratch.glob("*.lock"):
        if lock := _try_lock(path, flags=0):
            _discard(path.with_suffix(""))
            lock.release()
    for left in scratch.glob(f"{_LEFT}*"):
        _remove(left)


def _discard(workspace: Path) -> None:
    """Free a workspace's path and remove its files.

    It is renamed first: a compiler that outlived its worker may still write there, which makes the removal fail and must
    not block the next build. The next opening removes what is left.
    """
    left = _left(workspace.parent)
    with contextlib.suppress(FileNotFoundError):
        workspace.rename(left)
        _remove(left)


def _left(scratch: Path) -> Path:
    return scratch / f"{_LEFT}{secrets.token_hex(8)}"


def _remove(folder: Path) -> None:
    """Remove a directory as far as possible, whatever its depth and modes.

    Every directory is moved up before it is emptied: paths stay short, nothing recurses, and unreadable or deeply
    nested directories are removed like any other.
    """
    waiting = [folder]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
            waiting += _empty(folder)
            folder.rmdir()


def _empty(folder: Path) -> list[Path]:
    """Remove the files of a directory and move its directories up; return their new paths."""
    moved = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    Path(entry.path).chmod(0o700)  # required for moving it
                    moved.append(Path(entry.path).rename(_left(folder.parent)))
                else:
                    Path(entry.path).unlink()
    return moved


def _open(folder: Path, name: str) -> int:
    """Open a file of a folder for reading, without following links or blocking on pipes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _copy(source: int, target: Path) -> None:
    """Copy an open file at its present length; holes stay holes, so that a sparse file does not fill the disk."""
    length, at = os.fstat(source).st_size, 0
    with target.open("xb", buffering=0) as copy:
        while at < length:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # only a hole is left
            end = min(length, os.lseek(source, at, os.SEEK_HOLE))
            copy.seek(at)
            while at < end and (sent := os.sendfile(copy.fileno(), source, at, end - at)):
                at += sent
            if at < end:  # it was truncated meanwhile
                break
        copy.truncate(length)


def _output_refused(named: object, why: str) -> OutputRefused:
    return OutputRefused(
        f"{str(named)[:_SHOWN]!r}, sent by the build's process, {why}",
        where="out",
        hint="A model must not change the files of its build.",
    )
