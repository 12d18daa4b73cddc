"""The directory a build runs in: always the same path for the same slot, empty at the start of each job.

A compiled library holds its build path, so that a fixed path gives equal bytes for equal programs; and two
jobs in one compiler cache mix their outputs (facts/aoti.md, section 5).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pt2hub.errors import BadConfiguration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_SLOTS = 64


@contextmanager
def workspace(scratch: Path) -> Iterator[Path]:
    """The first free slot's directory, with `in`, `out` and `tmp` inside; removed afterwards.

    Args:
        scratch: Parent of all slots, made with mode 0700.

    Raises:
        BadConfiguration: The scratch directory belongs to someone else or cannot be made.
    """
    prepare(scratch)
    for number in range(MAX_SLOTS):
        lock = os.open(scratch / f"{number}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        slot = scratch / str(number)
        try:
            yield _emptied(slot)
        finally:
            shutil.rmtree(slot, ignore_errors=True)
            os.close(lock)
        return
    raise BadConfiguration(f"{MAX_SLOTS} builds run in {scratch} already", where="PT2HUB_SCRATCH")


def prepare(scratch: Path) -> None:
    """Makes the parent of all slots; a worker that could not would fail every build it takes.

    Raises:
        BadConfiguration: It belongs to someone else or cannot be made.
    """
    try:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = scratch.stat(follow_symlinks=False).st_uid
    except OSError as error:
        raise BadConfiguration(
            f"{scratch} cannot be made: {error.strerror}",
            where="PT2HUB_SCRATCH",
            hint="Name a directory of yours.",
        ) from error
    if owner != os.getuid() or scratch.is_symlink():
        raise BadConfiguration(f"{scratch} belongs to someone else", where="PT2HUB_SCRATCH")


def _emptied(slot: Path) -> Path:
    """Makes the slot's directory anew.

    One that is left is put aside first: a compiler that outlived its worker may still write there, so that removing
    it fails, and must not stand in the way of this build. What cannot be removed now is tried again the next time.
    """
    if slot.exists():
        slot.rename(slot.with_name(f"{slot.name}.left-{secrets.token_hex(4)}"))
    for left in slot.parent.glob(f"{slot.name}.left-*"):
        shutil.rmtree(left, ignore_errors=True)
    for name in ("in", "out", "tmp", "cache"):
        (slot / name).mkdir(parents=True)
    return slot
