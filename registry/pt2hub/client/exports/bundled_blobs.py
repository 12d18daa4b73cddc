"""Blobs of a bundle, brought into the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.client.exports.bundle import BUNDLE_HINT, Bundle, read_document
from pt2hub.domain.artifacts import Manifest
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import CorruptArchive, DigestMismatch

if TYPE_CHECKING:
    from collections.abc import Generator

    from pt2hub.client.blobs.cache import BlobCache
    from pt2hub.domain.artifacts import Descriptor


@dataclass(slots=True)
class _BundledBlob:
    """A blob of a bundle, as the cache reads it; the cache sets the seal when it resumes."""

    bundle: Bundle
    digest: Digest
    seal: str = ""
    connections: int = 1
    ranged: bool = True

    @property
    def url(self) -> str:
        return f"{self.bundle.path}: {self.digest}"

    @property
    def server(self) -> str:
        return str(self.bundle.path)

    def read(self, start: int, stop: int) -> Generator[bytes]:
        return self.bundle.chunks(self.digest, start, stop)


def read_manifest(bundle: Bundle, digest: Digest) -> tuple[bytes, Manifest]:
    """Return a manifest of a bundle, and its bytes, which have this digest.

    Raises:
        CorruptArchive: The bundle lacks it, or it is malformed.
    """
    data = bundle.read(digest)
    if digest_bytes(data) != digest:
        raise CorruptArchive("A manifest has another digest", where=f"{bundle.path}: {digest}")
    return data, read_document(Manifest, data, bundle)


def bring_blob(bundle: Bundle, cache: BlobCache, item: Descriptor, *, progress: bool | None) -> None:
    """Bring a blob of a bundle into the cache, verified.

    Raises:
        CorruptArchive: The bundle lacks it, or it has another length.
        DigestMismatch: Its bytes are others.
    """
    if bundle.size(item.digest) != item.size:
        raise CorruptArchive("A file has another length", where=f"{bundle.path}: {item.digest}")
    blob = _BundledBlob(bundle, item.digest)
    try:
        cache.get(item.digest, item.size, lambda: blob, verify="always", progress=progress)
    except DigestMismatch as exc:
        exc.hint = BUNDLE_HINT  # the cache's own speaks of proxies
        raise
