"""Storage keys: paths and HTTP headers of stored blobs and manifests."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.artifacts import MANIFEST_TYPE
from pt2hub.domain.digests import Digest
from pt2hub.domain.storage import FIRST, QUARANTINE, Kind, object_path, parse_object_path
from pt2hub.errors import NotFound


@dataclass(frozen=True, slots=True, order=True)
class StorageKey:
    """Key of a stored blob or manifest.

    Attributes:
        kind: `blobs`, or `manifests` and `tombstones`, which are kept apart so that a reindex can list them.
        digest: Digest of the bytes.
        generation: How often these bytes were stored anew after having been deleted, from 1 on; None for any of
            them, which to a reader are the same. Writers name one: see `server.db.schema.Blob`.
    """

    kind: Kind
    digest: Digest
    generation: int | None = None

    @classmethod
    def blob(cls, digest: Digest) -> StorageKey:
        """Return the key of a blob."""
        return cls("blobs", digest)

    @classmethod
    def manifest(cls, digest: Digest) -> StorageKey:
        """Return the key of a manifest."""
        return cls("manifests", digest)

    @classmethod
    def from_path(cls, path: str) -> StorageKey | None:
        """Return the key of a `path`; None for anything else in the storage."""
        found = parse_object_path(path)
        return cls(*found) if found else None

    def at(self, generation: int) -> StorageKey:
        """Return the same bytes in a generation."""
        return StorageKey(self.kind, self.digest, generation)

    @property
    def exact(self) -> StorageKey:
        """What a writer means by it: the first generation where none is named."""
        return self if self.generation else self.at(FIRST)

    @property
    def path(self) -> str:
        """Its path below the root of the storage; see `object_path`."""
        return object_path(self.kind, self.digest, self.generation or FIRST)

    @property
    def quarantine_path(self) -> str:
        """Where the bytes are kept once they are damaged, out of the way of all readers."""
        return f"{QUARANTINE}/{self.path}"

    @property
    def content_type(self) -> str:
        """The media type it is served as."""
        return MANIFEST_TYPE if self.kind == "manifests" else "application/octet-stream"

    @property
    def cache_control(self) -> str:
        """How long it may be cached: for ever, since its name is its content."""
        return "max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in the storage.

    Attributes:
        key: Its key with its generation.
        size: Size in bytes.
    """

    key: StorageKey
    size: int


def blob_missing(key: StorageKey) -> NotFound:
    """Return the error for a blob that is not in the storage; its context lets services say why."""
    return NotFound("The blob is missing from storage", where=key.digest, context={"kind": key.kind})
