"""Removal of what killed processes left in a cache."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pt2hub.client.blobs.file_links import remove_broken_links
from pt2hub.client.blobs.partial import RANGES, is_abandoned, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.client.blobs.folder import BlobFolder

PARTIAL_SECONDS = 7 * 86400.0
"""How long an interrupted download can be continued."""
_TEMPORARY_SECONDS = 86400.0
_LIVE_SECONDS = 60.0
"""A temporary file lives for the moment of its renaming; a younger one may be a running pull's."""
_TEMPORARY = re.compile(r"[0-9a-f]{64}\.(stat)?[0-9a-f]{8}")


def sweep(folder: BlobFolder, *, everything: bool = False) -> list[Path]:
    """Remove interrupted downloads and temporary files that nobody works on, and return what was removed.

    Args:
        everything: Whether to remove also those that are not old yet.
    """
    if everything:  # each pull would look at all artifacts
        remove_broken_links(folder.root)
    now = time.time()
    old = [path for path in _partial(folder) if everything or _age(path / RANGES, now) > PARTIAL_SECONDS]
    removed = [path for path in old if is_abandoned(path)]
    for path in removed:
        shutil.rmtree(path, ignore_errors=True)
    for path in _temporary(folder):
        if _age(path, now) > (_LIVE_SECONDS if everything else _TEMPORARY_SECONDS):
            with suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed


def _partial(folder: BlobFolder) -> Iterator[Path]:
    return (path for path in folder.partial.glob("*.*") if path.is_dir() and not path.is_symlink())


def _temporary(folder: BlobFolder) -> Iterator[Path]:
    yield from (path for path in folder.blobs.glob("*.*") if _TEMPORARY.fullmatch(path.name))
    yield from (path for path in folder.leaders.glob("*") if _is_free(path))


def _is_free(leader: Path) -> bool:
    """Return whether nobody leads with this file."""
    try:
        descriptor = os.open(leader, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return try_lock(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _age(path: Path, now: float) -> float:
    try:
        return now - path.lstat().st_mtime
    except OSError:
        return 0.0
