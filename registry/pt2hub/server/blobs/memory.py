"""In-memory storage for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.digests import CHUNK
from pt2hub.errors import NotFound
from pt2hub.server.blobs.keys import StoredObject, blob_missing
from pt2hub.server.blobs.verification import file_chunks, kept, verify_digest, verify_stored, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pt2hub.domain.storage import Kind
    from pt2hub.server.blobs.keys import StorageKey


class MemoryStorage:
    """Thread-safe storage in a dictionary."""

    def __init__(self) -> None:
        self._stored: dict[StorageKey, bytes] = {}
        self._objects: dict[str, bytes] = {}

    def size(self, key: StorageKey) -> int | None:
        """See `Reads.size`."""
        data = self._find(key)
        return None if data is None else len(data)

    def read(self, key: StorageKey, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """See `Reads.read`."""
        found = self._find(key)
        if found is None:
            raise blob_missing(key)
        data = memoryview(found)[start:stop]
        for at in range(0, len(data), CHUNK):
            yield bytes(data[at : at + CHUNK])

    def fetch(self, key: StorageKey, path: Path) -> None:
        """See `Reads.fetch`."""
        write_atomically(path, verify_stored(self.read(key), key))

    def write(self, key: StorageKey, chunks: Iterable[bytes], *, limit: int | None = None) -> int:
        """See `Writes.write`."""
        data = b"".join(verify_digest(chunks, key.digest, limit=limit))
        return kept(len(self._stored.setdefault(key.exact, data)), len(data), key)

    def write_file(self, key: StorageKey, path: Path) -> int:
        """See `Writes.write_file`."""
        stored = self.size(key.exact)
        return self.write(key, file_chunks(path)) if stored is None else stored

    def quarantine(self, key: StorageKey) -> None:
        """See `BlobQuarantine.quarantine`."""
        data = self._stored.pop(key.exact, None)
        if data is not None:
            self._objects[key.exact.quarantine_path] = data

    def read_quarantined(self, key: StorageKey) -> Iterator[bytes]:
        """See `BlobQuarantine.read_quarantined`."""
        data = self._objects.get(key.exact.quarantine_path)
        if data is None:
            raise blob_missing(key)
        yield data

    def keys(self, kind: Kind) -> Iterator[StorageKey]:
        """See `Lists.keys`."""
        yield from sorted(key for key in self._stored if key.kind == kind)

    def objects(self, kind: Kind) -> Iterator[StoredObject]:
        """See `BlobLister.objects`."""
        for key in self.keys(kind):
            size = self.size(key)
            if size is not None:
                yield StoredObject(key, size)

    def remove(self, keys: Sequence[StorageKey]) -> None:
        """See `BlobRemover.remove`."""
        for key in keys:
            self._stored.pop(key.exact, None)

    def free(self) -> int | None:
        """See `Measures.free`."""
        return None

    def check(self) -> None:
        """See `Checks.check`: memory can be written, and `write` overwrites nothing."""

    def probe(self) -> None:
        """See `StorageHealth.probe`."""

    def sweep(self, older_than: float) -> int:  # noqa: ARG002  # of the port
        """See `StorageHealth.sweep`: what is half-written is not in here."""
        return 0

    def create_object(self, path: str, data: bytes) -> bool:
        """See `NamedObjects.create_object`."""
        return self._objects.setdefault(path, data) is data

    def read_object(self, path: str) -> bytes:
        """See `NamedObjects.read_object`."""
        try:
            return self._objects[path]
        except KeyError:
            raise NotFound("Object not found in the storage.", where=path) from None

    def list_objects(self, folder: str) -> Iterator[tuple[str, int]]:
        """See `NamedObjects.list_objects`."""
        yield from sorted(
            (path, len(data)) for path, data in self._objects.items() if path.startswith(folder)
        )

    def delete_object(self, path: str) -> None:
        """See `NamedObjects.delete_object`."""
        self._objects.pop(path, None)

    def _find(self, key: StorageKey) -> bytes | None:
        data = self._stored.get(key.exact)
        if data is not None or key.generation is not None:
            return data
        # A copy, since other threads may write.
        others = [each for each in list(self._stored) if (each.kind, each.digest) == (key.kind, key.digest)]
        return self._stored.get(min(others)) if others else None
