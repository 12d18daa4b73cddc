"""Failures for lack of memory or disk space: of the machine at the moment, or of the build's limits."""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from pt2hub.errors import LimitExceeded, WorkerLost

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN_TMP = "PT2HUB_OWN_TMP"
"""Variable with the in-memory directories that belong to this child alone in a sandbox, separated by `:`."""
OWN_MEMORY = "PT2HUB_OWN_MEMORY"
"""Variable with the bytes of memory that this child may use."""
_NO_SPACE = "No space left on device"
_NEARLY_FULL = 1 << 20
"""Bytes; a directory with less space left counts as full."""
_NUMBERS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE})
_TEXTS = re.compile(
    r".*(No space left on device|Disk quota exceeded|Cannot allocate memory|virtual memory exhausted"
    r"|Killed signal terminated program).*"
)
"""Messages of compilers and of torch's allocator, which raise no error types of their own."""
_REQUESTED = re.compile(r"tried to allocate (\d+) bytes")
"""Message of torch's allocator when it gets no memory."""
_MAX_TEXT = 300
_GIB = 1 << 30


def find_shortage(error: BaseException, where: str | None = None) -> WorkerLost | LimitExceeded | None:
    """Return the error for a failure caused by a lack of memory or disk space.

    Returns:
        `WorkerLost` if another attempt may find more, `LimitExceeded` if none can; None for failures with other causes.
    """
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno == errno.EFBIG:  # RLIMIT_FSIZE
            return LimitExceeded(
                "The build wrote a file larger than its disk limit.",
                where=where,
                hint="Make the model's code write less; an operator can raise the worker's PT2HUB_BUILD_DISK.",
            )
        if text := _shortage_text(cause):
            if (requested := _REQUESTED.search(text)) and (
                found := check_memory(int(requested[1]), "One tensor alone", where)
            ):
                return found
            if _NO_SPACE in text and (folder := _find_full_directory(text)):
                return LimitExceeded(
                    f"The build filled {folder}, a directory in memory: {text[:_MAX_TEXT]}",
                    where=where,
                    hint="Make the model's code write to TMPDIR, which is on disk; an operator can raise the worker's "
                    "PT2HUB_BUILD_TMP.",
                )
            return WorkerLost(
                f"the worker's machine ran out of memory or disk space: {text[:_MAX_TEXT]}",
                where=where,
                hint="Free memory or disk space there, or run fewer builds at a time (PT2HUB_CONCURRENCY). If the error "
                "persists, the model is too large for that machine.",
            )
    return None


def format_gib(count: int) -> str:
    """Format a number of bytes in GiB, to three significant digits."""
    return f"{count / _GIB:.3g} GiB" if count < 999 * _GIB else f"{count // _GIB} GiB"


def check_memory(size: int, what: str, where: str | None = None) -> LimitExceeded | None:
    """Return the error for a build that needs more memory than its limit; None if it may fit.

    Args:
        size: Bytes that the build needs at least.
    """
    limit = int(os.environ.get(OWN_MEMORY, "0"))
    if not limit or size <= limit:
        return None
    return LimitExceeded(
        f"{what} needs more memory than the build may use: {format_gib(size)} of {format_gib(limit)}.",
        where=where,
        hint="Use a smaller model or a smaller example; an operator can raise PT2HUB_BUILD_MEMORY of the worker.",
        context={"what": "memory", "limit": limit},
    )


def _find_full_directory(text: str) -> str | None:
    """Return the in-memory directory that is full, by the message or by its free space; None if it is one on disk."""
    for folder in filter(None, os.environ.get(OWN_TMP, "").split(os.pathsep)):
        if f"{folder}/" in text or _free_bytes(folder) < _NEARLY_FULL:
            return folder
    return None


def _free_bytes(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        hidden = following.__suppress_context__
        following = following.__cause__ or (None if hidden else following.__context__)


def _shortage_text(error: BaseException) -> str | None:
    name, text = type(error).__name__, " ".join(str(error).split()) or "no more memory"
    by_kind = isinstance(error, MemoryError) or name == "OutOfMemoryError"  # torch's, where it is imported
    if by_kind or (isinstance(error, OSError) and error.errno in _NUMBERS):
        return f"{name}: {text}"
    found = _TEXTS.search(str(error))
    return found[0].strip() if found else None
