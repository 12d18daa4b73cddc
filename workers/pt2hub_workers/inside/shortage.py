"""Failures for want of room: of the machine, which has none at the moment, or of the build, which may use no more."""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from pt2hub.errors import LimitExceeded, WorkerLost

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN_TMP = "PT2HUB_OWN_TMP"
"""Names, in a sandbox, the directories in memory that are this child's alone, with `:` between them."""
OWN_MEMORY = "PT2HUB_OWN_MEMORY"
"""Says how many bytes of memory this child may use."""
_NO_SPACE = "No space left on device"
_NEARLY_FULL = 1 << 20
"""Bytes; what did not fit was larger than that, or it would be there."""
_NUMBERS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE})
_TEXTS = re.compile(
    r".*(No space left on device|Disk quota exceeded|Cannot allocate memory|virtual memory exhausted"
    r"|Killed signal terminated program).*"
)
"""What compilers print, and torch's allocator: neither raises an error of its own kind."""
_ASKED = re.compile(r"tried to allocate (\d+) bytes")
"""What torch's allocator says of memory that it did not get."""
_MOST = 300
_GIB = 1 << 30


def shortage(error: BaseException, where: str | None = None) -> WorkerLost | LimitExceeded | None:
    """The error of a build that there was no room for: on its machine, where another attempt may find more, or at all.

    Args:
        error: What was raised; its causes count too.
        where: Where it happened.

    Returns:
        None where it failed for another reason.
    """
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno == errno.EFBIG:  # RLIMIT_FSIZE
            return LimitExceeded(
                "The build wrote a file that is longer than all that it may write.",
                where=where,
                hint="Let the model's code write less; an operator can raise PT2HUB_BUILD_DISK of the worker.",
            )
        if said := _said(cause):
            if (asked := _ASKED.search(said)) and (
                found := over_memory(int(asked[1]), "One tensor alone", where)
            ):
                return found
            if _NO_SPACE in said and (folder := _full(said)):
                return LimitExceeded(
                    f"The build filled {folder}, which lies in memory: {said[:_MOST]}",
                    where=where,
                    hint="Let the model's code write to the directory that TMPDIR names, which lies on disk; an operator "
                    "can raise PT2HUB_BUILD_TMP of the worker.",
                )
            return WorkerLost(
                f"the machine that builds ran short: {said[:_MOST]}",
                where=where,
                hint="Free memory or disk there, or run fewer builds at a time (PT2HUB_CONCURRENCY). Where it stays, "
                "the model is too large for that machine.",
            )
    return None


def gib(count: int) -> str:
    """A number of bytes in GiB, to three figures."""
    return f"{count / _GIB:.3g} GiB" if count < 999 * _GIB else f"{count // _GIB} GiB"


def over_memory(size: int, what: str, where: str | None = None) -> LimitExceeded | None:
    """The error of a build that can never have the memory that it needs; None where it might.

    Args:
        size: Bytes that it needs at least.
        what: What needs them, the beginning of a sentence.
        where: As of errors.
    """
    limit = int(os.environ.get(OWN_MEMORY, "0"))
    if not limit or size <= limit:
        return None
    return LimitExceeded(
        f"{what} needs more memory than the build may use: {gib(size)} of {gib(limit)}.",
        where=where,
        hint="Use a smaller model or a smaller example; an operator can raise PT2HUB_BUILD_MEMORY of the worker.",
        context={"what": "memory", "limit": limit},
    )


def _full(said: str) -> str | None:
    """The directory in memory that is full, by what was said or by how it is; None where it is one on disk."""
    for folder in filter(None, os.environ.get(OWN_TMP, "").split(os.pathsep)):
        if f"{folder}/" in said or _free(folder) < _NEARLY_FULL:
            return folder
    return None


def _free(folder: str) -> int:
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


def _said(error: BaseException) -> str | None:
    name, text = type(error).__name__, " ".join(str(error).split()) or "no more memory"
    by_kind = isinstance(error, MemoryError) or name == "OutOfMemoryError"  # torch's, where it is imported
    if by_kind or (isinstance(error, OSError) and error.errno in _NUMBERS):
        return f"{name}: {text}"
    found = _TEXTS.search(str(error))
    return found[0].strip() if found else None
