"""Storage keys: paths and HTTP headers of stored blobs and manifests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pt2hub.domain.artifacts import MANIFEST_TYPE
from pt2hub.domain.digests import Digest, hex_of

Kind: TypeAlias = Literal["blobs", "manifests"]
_PATH = re.compile(r"(blobs|manifests)/sha256/([0-9a-f]{2})/(\2[0-9a-f]{62})(?:\.([1-9]\d{0,8}))?")
FIRST = 1
"""The generation of what was never deleted."""


@dataclass(frozen=True, slots=True, order=True)
class StorageKey:
    """Key of a stored blob or manifest.

    Attributes:
        kind: `blobs`, or `manifests`, which are kept apart so that a reindex can list them.
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
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        kind: Kind = "manifests" if match[1] == "manifests" else "blobs"
        generation = int(match[4] or FIRST)
        if match[4] and generation == FIRST:
            return None
        return cls(kind, Digest(f"sha256:{match[3]}"), generation)

    def at(self, generation: int) -> StorageKey:
        """Return the same bytes in a generation."""
        return StorageKey(self.kind, self.digest, generation)

    @property
    def exact(self) -> StorageKey:
        """What a writer means by it: the first generation where none is named."""
        return self if self.generation else self.at(FIRST)

    @property
    def path(self) -> str:
        """Its path below the root of the storage; the first two digits keep folders small.

        The first generation's is the digest alone, so that nearly everything is found at once.
        """
        digits = hex_of(self.digest)
        suffix = f".{self.generation}" if (self.generation or FIRST) > FIRST else ""
        return f"{self.kind}/sha256/{digits[:2]}/{digits}{suffix}"

    @property
    def content_type(self) -> str:
        """The media type it is served as."""
        return MANIFEST_TYPE if self.kind == "manifests" else "application/octet-stream"

    @property
    def cache_control(self) -> str:
        """How long it may be cached: for ever, since its name is its content."""
        return "max-age=31536000, immutable"
