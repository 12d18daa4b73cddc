"""What the rest of the server asks of a storage, split by capability.

Every adapter raises only errors of pt2hub, also while an iterator that it returned is read:
`StorageUnavailable` where the storage does not do what was asked, `StorageFull` where it has no room, and
what each method names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pt2hub.server.blobs.keys import Kind, StorageKey


class Reads(Protocol):
    """A storage that can be read."""

    def size(self, key: StorageKey) -> int | None:
        """Length of what is stored there, or None."""
        ...

    def read(self, key: StorageKey, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes in pieces, or a range of them, clipped as a slice is; they are not hashed again.

        Args:
            key: What to read.
            start: First byte.
            stop: First byte no longer wanted; None means to the end.

        Raises:
            NotFound: Nothing is stored there; raised when the first piece is asked for.
        """
        ...

    def fetch(self, key: StorageKey, path: Path) -> None:
        """Writes the bytes to a file, which appears only when it is whole and its digest right.

        Raises:
            NotFound: Nothing is stored there.
            DigestMismatch: The storage returned other bytes; no file is left.
        """
        ...


class Writes(Protocol):
    """A storage that can be written."""

    def write(self, key: StorageKey, chunks: Iterable[bytes], *, limit: int | None = None) -> int:
        """Stores bytes under their digest, which is taken while they pass; visible only when whole.

        Where the key exists, the bytes are checked and what is stored stays as it is. Errors of `chunks`
        itself pass through; nothing is left behind by any error.

        Args:
            key: Their name.
            chunks: The bytes.
            limit: The most bytes that are taken.

        Returns:
            The number of bytes.

        Raises:
            DigestMismatch: The bytes have another digest.
            TooLarge: There are more than `limit`.
        """
        ...

    def write_file(self, key: StorageKey, path: Path) -> int:
        """Stores a file's bytes; the file is not read where the key exists.

        Returns:
            The number of bytes.

        Raises:
            DigestMismatch: The file has another digest.
        """
        ...


class Lists(Protocol):
    """A storage whose content can be listed."""

    def keys(self, kind: Kind) -> Iterator[StorageKey]:
        """What is stored, in the order of the digests; half-written things are not listed."""
        ...


class Measures(Protocol):
    """A storage that knows how much it can still take."""

    def free(self) -> int | None:
        """Bytes that it has room for; None where it knows no end."""
        ...


class Storage(Reads, Writes, Lists, Measures, Protocol):
    """A storage that can do all of it."""
