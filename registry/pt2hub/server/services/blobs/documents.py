"""Reading of manifests, configs and other documents from storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import ArtifactConfig, Manifest
from pt2hub.domain.codec import decode, parse_json
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BadResponse, TooLarge
from pt2hub.server.blobs.keys import StorageKey, blob_missing
from pt2hub.server.blobs.verification import blob_damaged

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import BlobReader

MAX_DOCUMENT_BYTES = 1 << 26
"""64 MiB: a config lists every constant and argument, some hundred bytes each."""


def read_bytes(storage: BlobReader, key: StorageKey) -> bytes:
    """Return an object's bytes, at most `MAX_DOCUMENT_BYTES`, verified against its digest.

    Raises:
        NotFound: The object does not exist.
        TooLarge: It is larger.
        BlobDamaged: The storage holds other bytes.
    """
    data = bytearray()
    for chunk in storage.read(key):
        data += chunk
        if len(data) > MAX_DOCUMENT_BYTES:
            raise TooLarge(f"{key.digest} is too large for a document", where=key.path)
    found = bytes(data)
    if digest_bytes(found) != key.digest:
        raise blob_damaged(key)
    return found


def read_verified(storage: BlobReader, key: StorageKey, *, most: int) -> bytes:
    """Return an object's bytes, verified against its digest.

    Args:
        most: Maximum size in bytes; a larger object is not read at all.

    Raises:
        NotFound: The object does not exist.
        TooLarge: It is larger.
        BlobDamaged: The storage holds other bytes.
    """
    size = storage.size(key)
    if size is None:
        raise blob_missing(key)
    if size > most:
        raise TooLarge(f"The object has {size} bytes, more than the {most} that can be shown", where=key.path)
    data = b"".join(storage.read(key, 0, most))
    if digest_bytes(data) != key.digest:
        raise blob_damaged(key)
    return data


def read_json(storage: BlobReader, key: StorageKey) -> Any:
    """Return a stored JSON document.

    Raises:
        NotFound: The object does not exist.
        BlobDamaged: The storage holds other bytes.
        BadResponse: It is not valid JSON.
    """
    try:
        return parse_json(read_bytes(storage, key))
    except ValueError as exc:
        raise BadResponse(f"{key.digest} is not valid JSON", where=key.path) from exc


def read_manifest(storage: BlobReader, digest: Digest) -> Manifest:
    """Return a manifest.

    Raises:
        NotFound: The manifest does not exist.
        BlobDamaged: The storage holds other bytes.
        BadResponse: It was not written by pt2hub, or by a newer one: it does not encode to the same bytes.
    """
    manifest = decode(Manifest, read_json(storage, StorageKey.manifest(digest)), where=digest)
    if manifest.digest != digest:
        raise BadResponse("The manifest is damaged, or has fields of a newer pt2hub", where=digest)
    return manifest


def named_by(*manifests: Manifest) -> dict[StorageKey, int]:
    """Return the keys of manifests and of everything that they name, each with its size."""
    named: dict[StorageKey, int] = {}
    for manifest in manifests:
        named[StorageKey.manifest(manifest.digest)] = len(manifest.as_bytes())
        parts = (manifest.config, *manifest.layers)
        named |= {StorageKey.blob(part.digest): part.size for part in parts}
    return named


def read_config(storage: BlobReader, manifest: Manifest) -> ArtifactConfig:
    """Return the config of an artifact.

    Raises:
        NotFound: The blob does not exist.
        BadResponse: It is not a pt2hub config.
    """
    digest = manifest.config.digest
    return decode(ArtifactConfig, read_json(storage, StorageKey.blob(digest)), where=digest)
