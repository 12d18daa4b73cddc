"""Digest verification of streams, and atomic file writes."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pt2hub.domain.digests import CHUNK
from pt2hub.errors import BlobDamaged, DigestMismatch, StorageFull, StorageUnavailable, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.keys import StorageKey

INCOMPLETE = ".incomplete"
_TEMPORARY = re.compile(rf"\.(.+)\.[0-9a-f]+{re.escape(INCOMPLETE)}")
"""Ending of files that are being written; one that a crash left behind is never read."""

PRIVATE = 0o600
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def verify_digest(chunks: Iterable[bytes], digest: Digest, *, limit: int | None = None) -> Iterator[bytes]:
    """Pass chunks through and verify their digest at the end.

    Args:
        chunks: The bytes.
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
                f"The upload is too large (more than {limit} bytes).",
                hint="Ask the server's operator to raise PT2HUB_MAX_BLOB_BYTES.",
                context={"limit": limit},
            )
        hasher.update(chunk)
        yield chunk
    found = f"sha256:{hasher.hexdigest()}"
    if found != digest:
        raise DigestMismatch(
            f"The content has the digest {found}.",
            where=digest,
            hint="Transfer it again; if the digest stays the same, the source is wrong.",
        )


def verify_stored(chunks: Iterable[bytes], key: StorageKey) -> Iterator[bytes]:
    """Pass chunks of a stored blob through and verify their digest at the end.

    Raises:
        BlobDamaged: They have another digest.
    """
    try:
        yield from verify_digest(chunks, key.digest)
    except DigestMismatch as error:
        raise blob_damaged(key) from error


def blob_damaged(key: StorageKey) -> BlobDamaged:
    """Return the error for a stored blob with other bytes; its context lets services record the damage."""
    return BlobDamaged(
        "The stored blob is damaged: its bytes have another digest.",
        where=key.digest,
        hint=f"The server's operator mends it: pt2hub admin heal {key.digest}.",
        context={"kind": key.kind},
    )


def kept(stored: int, size: int, key: StorageKey) -> int:
    """Check the size of an existing blob against that of correct content.

    Returns:
        The number of bytes.

    Raises:
        DigestMismatch: What is stored has another size, so it is damaged.
    """
    if stored != size:
        raise DigestMismatch(
            f"The stored blob has {stored} bytes instead of {size}.",
            where=key.path,
            hint="Try again: it is checked, and if it is damaged, the next upload replaces it.",
        )
    return size


def write_atomically(
    path: Path, chunks: Iterable[bytes], *, mode: int = PRIVATE, durable: bool = False
) -> int:
    """Write a file atomically.

    Args:
        path: The file, replaced where it exists.
        chunks: Its bytes; an error they raise passes through.
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
    """Yield a file's bytes in pieces, or a range of them.

    Args:
        start: First byte.
        stop: First byte no longer wanted; None means to the end.

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
                raise StorageUnavailable("The file was truncated while it was read.", where=str(path))
            left -= len(chunk)
            yield chunk


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that renames survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """Translate errors of the file system.

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
                where=_place(path),
                hint="Free space there, or move the storage to a larger disk with PT2HUB_STORAGE.",
            ) from error
        raise StorageUnavailable(
            f"{error.strerror or type(error).__name__}.",
            where=_place(path),
            hint="Check that the directory exists, is writable for this user and has free space.",
        ) from error


def _place(path: Path) -> str:
    """Return what an error names for a path: not a temporary or hidden file of pt2hub's own."""
    match = _TEMPORARY.fullmatch(path.name)
    named = path.with_name(match[1]) if match else path
    return str(named.parent if named.name.startswith(".") else named)


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
