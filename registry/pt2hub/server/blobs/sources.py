"""Stored blobs as byte sources for `pt2hub.archive`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.digests import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.blobs.ports import BlobReader


class StoredSource:
    """A stored blob as an `archive.ByteSource`; at most one chunk is in memory.

    Attributes:
        size: How many bytes it has.
    """

    def __init__(self, storage: BlobReader, key: StorageKey, size: int) -> None:
        self._storage = storage
        self._key = key
        self.size = size
        self._begin, self._held = 0, b""

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """See `archive.ByteSource.read`."""
        if stop - start >= CHUNK:
            yield from self._storage.read(self._key, start, stop)
            return
        # A model has hundreds of biases of some hundred bytes each, and S3 takes 20 ms for each request.
        if not self._begin <= start <= stop <= self._begin + len(self._held):
            end = min(start + CHUNK, self.size)
            self._begin, self._held = start, b"".join(self._storage.read(self._key, start, end))
        yield self._held[start - self._begin : stop - self._begin]
