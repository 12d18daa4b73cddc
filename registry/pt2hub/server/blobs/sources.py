"""A stored object as bytes that are read in ranges, which is what `pt2hub.archive` reads from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.digests import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.blobs.ports import Reads


class StoredSource:
    """A stored object as an `archive.ByteSource`; it holds at most one chunk of it.

    Attributes:
        size: How many bytes it has.
    """

    def __init__(self, storage: Reads, key: StorageKey, size: int) -> None:
        """Names the object; nothing is read yet."""
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
