"""Storage ports, split by capability.

Adapters raise only pt2hub errors, also from the iterators that they return: `StorageUnavailable`, `StorageFull`, and
the errors documented on each method.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.storage import Kind, StorageLocation
    from pt2hub.server.blobs.keys import StorageKey, StoredObject


RESERVE_BYTES = 64 << 20
"""Disk space kept free for the embedded PostgreSQL and the logs, which share the storage's disk."""


class BlobReader(Protocol):
    """A storage that can be read; a key without a generation finds the bytes in any of them."""

    def size(self, key: StorageKey) -> int | None:
        """Return the size of a blob in bytes, or None if it does not exist."""
        ...

    def read(self, key: StorageKey, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes in pieces, or a range of them, clipped as a slice is; they are not hashed again.

        Args:
            start: First byte.
            stop: First byte no longer wanted; None means to the end.

        Raises:
            NotFound: Nothing is stored there; raised when the first piece is asked for.
        """
        ...

    def fetch(self, key: StorageKey, path: Path) -> None:
        """Write the bytes to a file, which appears only when it is whole and its digest right.

        Raises:
            NotFound: Nothing is stored there.
            DigestMismatch: The storage returned other bytes; no file is left.
        """
        ...


class BlobWriter(Protocol):
    """A storage that can be written; a key without a generation means the first one."""

    def write(self, key: StorageKey, chunks: Iterable[bytes], *, limit: int | None = None) -> int:
        """Store bytes under their digest, which is taken while they pass; visible only when whole.

        Where the key exists, the bytes are checked and what is stored stays as it is. Errors of `chunks`
        itself pass through; nothing is left behind by any error.

        Args:
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
        """Store a file's bytes; the file is not read where the key exists.

        Returns:
            The number of bytes.

        Raises:
            DigestMismatch: The file has another digest.
        """
        ...


class BlobQuarantine(Protocol):
    """A storage that can put damaged bytes away."""

    def quarantine(self, key: StorageKey) -> None:
        """Move an object to `quarantine/`, where no reader looks; where there is none, nothing happens.

        Args:
            key: Its key; without a generation the first one.
        """
        ...

    def read_quarantined(self, key: StorageKey) -> Iterator[bytes]:
        """Yield the bytes that were put away of an object, in pieces; they are not hashed.

        Args:
            key: Its key; without a generation the first one.

        Raises:
            NotFound: Nothing was put away; raised when the first piece is asked for.
        """
        ...


class BlobLister(Protocol):
    """A storage whose content can be listed."""

    def objects(self, kind: Kind) -> Iterator[StoredObject]:
        """Yield what `keys` yields, with sizes."""
        ...

    def keys(self, kind: Kind) -> Iterator[StorageKey]:
        """Yield what is stored, each with its generation, in the order of the digests; nothing half-written."""
        ...


class BlobRemover(Protocol):
    """A storage that can remove objects; only server processes have the rights for it."""

    def remove(self, keys: Sequence[StorageKey]) -> None:
        """Remove objects of exactly the generations that the keys name; missing ones are ignored.

        Raises:
            StorageUnavailable: It does not answer, or refused to remove one; others may be removed.
        """
        ...


class BlobSizer(Protocol):
    """A storage that knows its free space."""

    def free(self) -> int | None:
        """Return the free space in bytes; None if unlimited."""
        ...


class StorageHealth(Protocol):
    """A storage that can be checked before use."""

    def check(self) -> None:
        """Try what pt2hub relies on: that it can be written, and that nothing is ever overwritten.

        Called when a server or a worker starts. What it leaves behind is of constant size.

        Raises:
            BadConfiguration: The settings name a bucket that is not there, or credentials that may not write.
            StorageUnsafe: It takes conditional creates and ignores the condition.
            StorageFull: It has no room.
            StorageUnavailable: It does not answer.
        """
        ...

    def probe(self) -> None:
        """Try whether it takes a write now; cheap, for readiness checks.

        Raises:
            StorageFull: It has no room.
            StorageUnavailable: It does not answer, or refuses.
        """
        ...

    def sweep(self, older_than: float) -> int:
        """Remove what writers that died left half-written.

        Args:
            older_than: Seconds since it was last written to: more than any writer pauses, since one that lives
                would lose its bytes.

        Returns:
            How many were removed.
        """
        ...


class NamedObjects(Protocol):
    """A storage that also keeps small objects under paths of their own, such as the journal's; never overwritten."""

    def create_object(self, path: str, data: bytes) -> bool:
        """Store an object, whole and durable, unless the path exists; return whether it was stored."""
        ...

    def read_object(self, path: str) -> bytes:
        """Return an object's bytes.

        Raises:
            NotFound: Nothing is stored there.
        """
        ...

    def list_objects(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield path and size of the objects in a folder, whose name ends with `/`, in the order of their paths."""
        ...

    def delete_object(self, path: str) -> None:
        """Remove an object; where there is none, nothing happens."""
        ...


class Storage(
    BlobReader,
    BlobWriter,
    BlobQuarantine,
    BlobLister,
    BlobRemover,
    BlobSizer,
    StorageHealth,
    NamedObjects,
    Protocol,
):
    """A storage with all basic capabilities."""


@dataclass(frozen=True, slots=True)
class PresignedRequest:
    """A presigned request, valid for a few minutes without credentials.

    Attributes:
        method: GET or PUT.
        url: Whole address. Its query is a secret: it must stand in no log.
        headers: Headers that are signed and must be sent as they are.
        size: Length of what a read returns.
    """

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict)
    size: int | None = None


@runtime_checkable
class PresignedTransfers(Protocol):
    """A storage with presigned transfers by clients.

    What is uploaded in parts lies under `incoming/` until it was hashed: only then it is copied to its key.

    Attributes:
        single_bytes: Largest object for one signed PUT; 0 unless `Checks.check` found out that the server checks
            the digest that is signed with it.
        location: Where clients with credentials of their own find the storage.
    """

    single_bytes: int
    part_bytes: int
    location: StorageLocation

    def sign_read(self, key: StorageKey, *, seconds: float) -> PresignedRequest:
        """Return a request for the bytes or a range of them.

        Raises:
            NotFound: Nothing is stored there.
        """
        ...

    def sign_write(self, key: StorageKey, size: int, *, seconds: float) -> PresignedRequest:
        """Return a request that creates this object once, with this size and this digest, or is refused."""
        ...

    def begin_parts(self, upload: str) -> str:
        """Begin an upload in parts.

        Args:
            upload: The upload's id: letters, digits and `-`.

        Returns:
            S3's own id of it.
        """
        ...

    def sign_part(
        self, upload: str, multipart: str, number: int, *, size: int, md5: str, seconds: float
    ) -> PresignedRequest:
        """Return a request that stores one part, with this size and this MD5 (base64), or is refused.

        MD5 because every S3 server checks it, and only against accidents: what counts is the hash of the whole,
        which `hash_parts` takes.
        """
        ...

    def finish_parts(self, upload: str, multipart: str, etags: Sequence[str]) -> int:
        """Put the parts together under `incoming/`; where that was done already, nothing happens.

        Returns:
            The size of the whole.

        Raises:
            UploadIncomplete: S3 does not have these parts.
        """
        ...

    def hash_parts(self, upload: str, on_bytes: Callable[[int], None]) -> Digest:
        """Return the digest of what lies under `incoming/`.

        Args:
            on_bytes: Called now and then with the number of bytes hashed so far; errors it raises pass through.

        Raises:
            UploadIncomplete: Nothing lies there.
        """
        ...

    def admit(self, upload: str, key: StorageKey, size: int) -> None:
        """Copy what lies under `incoming/` to its key, unless the key exists; the storage moves the bytes.

        Raises:
            UploadIncomplete: Nothing lies under `incoming/`.
            DigestMismatch: What lies there, or under the key, has another size.
        """
        ...

    def discard(self, upload: str, multipart: str | None) -> None:
        """Remove everything of an upload; missing parts are ignored."""
        ...
