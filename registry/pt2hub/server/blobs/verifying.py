"""Bytes are checked while they pass, and files appear whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pt2hub.domain.digests import CHUNK
from pt2hub.errors import DigestMismatch, StorageFull, StorageUnavailable, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.keys import StorageKey

INCOMPLETE = ".incomplete"
"""Ending of files that are being written; one that a crash left behind is never read."""

PRIVATE = 0o600
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def verified(chunks: Iterable[bytes], digest: Digest, *, limit: int | None = None) -> Iterator[bytes]:
    """Passes bytes on and raises at their end where they are not those of the digest.

    Args:
        chunks: The bytes.
        digest: What they should be.
        limit: The most bytes that are taken.

    Raises:
        DigestMismatch: They have another digest.
        TooLarge: There are more than `limit`.
    """
    hasher = hashlib.sha256()
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if limit is not None and size > limit:
            raise TooLarge(
                f"The upload has more than {limit} bytes.",
                hint="Ask the server's operator to raise PT2HUB_MAX_BLOB_BYTES.",
                context={"limit": limit},
            )
        hasher.update(chunk)
        yield chunk
    found = f"sha256:{hasher.hexdigest()}"
    if found != digest:
        raise DigestMismatch(
            f"The bytes have the digest {found}.",
            where=digest,
            hint="Transfer them again; if that gives the same digest, the source is not what its name says.",
        )


def kept(stored: int, size: int, key: StorageKey) -> int:
    """Compares what is stored with right bytes as far as it costs nothing: by its size.

    Returns:
        The number of bytes.

    Raises:
        DigestMismatch: What is stored has another size, so it is damaged.
    """
    if stored != size:
        raise DigestMismatch(
            f"What is stored has {stored} bytes where its digest's have {size}.",
            where=key.path,
            hint="Delete it in the storage, then store it again: something other than pt2hub wrote it.",
        )
    return size


def write_atomically(
    path: Path, chunks: Iterable[bytes], *, mode: int = PRIVATE, durable: bool = False
) -> int:
    """Writes a file that appears when it is whole, or not at all.

    Args:
        path: The file, replaced where it exists.
        chunks: Its bytes; an error they raise passes through.
        mode: Its permissions.
        durable: Whether it is on the disk, name included, before this returns.

    Returns:
        The number of bytes.

    Raises:
        StorageFull: The disk has no room for it.
        StorageUnavailable: The directory or the disk does not take it.
    """
    # In the same folder, so that the rename stays in one file system.
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}{INCOMPLETE}"
    try:
        size = _write(temporary, chunks, mode, durable=durable)
        with os_errors(path):
            temporary.replace(path)
            if durable:
                sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return size


def file_chunks(
    path: Path, start: int = 0, stop: int | None = None, *, piece: int = CHUNK
) -> Iterator[bytes]:
    """A file's bytes in pieces, or a range of them.

    Args:
        path: The file.
        start: First byte.
        stop: First byte no longer wanted; None means to the end.
        piece: Size of a piece; the last one may be smaller.

    Raises:
        StorageUnavailable: It cannot be read.
    """
    with os_errors(path):
        file = path.open("rb")
    with file:
        with os_errors(path):
            left = max(0, min(os.fstat(file.fileno()).st_size, _end(stop)) - start)
            file.seek(start)
        while left:
            with os_errors(path):
                chunk = file.read(min(piece, left))
            if not chunk:
                raise StorageUnavailable("The file became shorter while it was read.", where=str(path))
            left -= len(chunk)
            yield chunk


def sync_folder(folder: Path) -> None:
    """Puts a folder's entries on the disk: without it a rename may be lost with the power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """The seam of the file system: its errors become ours.

    Raises:
        StorageFull: The disk, or this user's share of it, is full.
        StorageUnavailable: The block raised another OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(
                f"{error.strerror}.",
                where=str(path),
                hint="Free space there, or move the storage to a larger disk with PT2HUB_STORAGE.",
            ) from error
        raise StorageUnavailable(
            f"{error.strerror or type(error).__name__}.",
            where=str(path),
            hint="Check that the directory exists, is writable for this user and has free space.",
        ) from error


def _write(path: Path, chunks: Iterable[bytes], mode: int, *, durable: bool) -> int:
    with os_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    size = 0
    try:
        for chunk in chunks:
            with os_errors(path):
                _write_whole(descriptor, chunk)
            size += len(chunk)
        with os_errors(path):
            os.fchmod(descriptor, mode)
            if durable:
                os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size


def _write_whole(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]


def _end(stop: int | None) -> int:
    return 1 << 62 if stop is None else stop
