"""Records of cached files: how a file looked when its digest was last verified."""

from __future__ import annotations

import functools
import json
import os
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = "tuple[int, int, int, int]"
"""Size, time of the last change of the content, inode, and time of the last change of the inode, which nothing can set."""
SUFFIX = ".stat"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SETTLED_SECONDS = 60.0
"""After so long the kernel has written a file to disk, so that making sure of it costs nothing."""
_USED_SECONDS = 3600.0
"""Precision of the time of the last use."""


def stamp(status: os.stat_result) -> Stamp:
    """Return what changes when a file is changed."""
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns


@functools.cache
def boot_id() -> str:
    """Return a name of the machine's current start; empty where the operating system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a verified file.

    Attributes:
        stamp: Of the file, when it was verified.
        boot: The machine's start during which it was written, if it may not be on disk yet: after a power failure its
            content may be lost, and it must be verified again. Empty if it is on disk.
    """

    stamp: Stamp
    boot: str

    @classmethod
    def read(cls, path: Path, owner: int | None = None) -> Record | None:
        """Return the record of a cached file, None without one.

        Args:
            owner: User whose record counts; anyone's if omitted.
        """
        try:
            descriptor = os.open(path.with_suffix(SUFFIX), os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                if owner is not None and os.fstat(file.fileno()).st_uid != owner:
                    return None
                found = json.loads(file.read(1000))
            return cls(tuple(map(int, found["stamp"])), str(found["boot"]))  # type: ignore[arg-type]  # any length: compared
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def vouches_for(self, found: Stamp) -> bool:
        """Return whether a file that looks like this is the verified one."""
        return self.stamp == found and self.boot in {"", boot_id()}

    def write(self, path: Path, mode: int) -> None:
        """Store the record of a cached file; a read-only cache still serves, and its files are hashed on each load."""
        made = path.with_suffix(f"{SUFFIX}{os.urandom(4).hex()}")
        with suppress(OSError):
            try:
                descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
                with os.fdopen(descriptor, "w", encoding="ascii") as file:
                    os.fchmod(descriptor, mode)
                    json.dump(asdict(self), file)
                made.replace(path.with_suffix(SUFFIX))
            except OSError:
                made.unlink(missing_ok=True)

    def note_use(self, path: Path, mode: int) -> None:
        """Note that a file is used, and once that it is on disk. Both need no precision, and most calls do nothing."""
        record = path.with_suffix(SUFFIX)
        with suppress(OSError):
            age = time.time() - record.stat().st_mtime
            if self.boot and age > _SETTLED_SECONDS:
                sync(path)
                Record(self.stamp, "").write(path, mode)
            elif age > _USED_SECONDS:
                os.utime(record)


def sync(path: Path) -> None:
    """Write a file's content to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def regular_stamp(path: Path, owner: int | None = None) -> Stamp | None:
    """Return a file's stamp; None if there is no file, or a link or a folder in its place.

    Args:
        owner: User who alone may have written the file; anyone if omitted.
    """
    try:
        status = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    if owner is not None and (status.st_uid != owner or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        return None
    return stamp(status)
