"""Manifests and configs out of the storage, where they are the truth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import ArtifactConfig, Manifest
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BadResponse, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import Reads

MAX_DOCUMENT_BYTES = 1 << 26
"""64 MiB: a config lists every constant and argument, some hundred bytes each."""


def read_bytes(storage: Reads, key: StorageKey) -> bytes:
    """A whole object, bounded.

    Raises:
        NotFound: There is no such object.
        TooLarge: It is too large for a document.
    """
    data = bytearray()
    for chunk in storage.read(key):
        data += chunk
        if len(data) > MAX_DOCUMENT_BYTES:
            raise TooLarge(f"{key.digest} is too large for a document", where=key.path)
    return bytes(data)


def read_proven(storage: Reads, key: StorageKey, *, most: int) -> bytes:
    """A whole object that is small enough, and what its digest says.

    Args:
        storage: Holds it.
        key: What to read.
        most: Bytes that it may have; a larger one is not read at all.

    Raises:
        NotFound: There is no such object.
        TooLarge: It is larger.
        DigestMismatch: The storage holds other bytes.
    """
    size = storage.size(key)
    if size is None:
        raise NotFound(f"{key.digest} is gone from the storage", where=key.path)
    if size > most:
        raise TooLarge(f"It has {size} bytes, more than the {most} that are shown", where=key.path)
    data = b"".join(storage.read(key, 0, most))
    if digest_bytes(data) != key.digest:
        raise DigestMismatch(f"The storage holds other bytes than {key.digest}", where=key.path)
    return data


def read_json(storage: Reads, key: StorageKey) -> Any:  # noqa: ANN401  # any JSON value
    """A JSON object of the storage.

    Raises:
        NotFound: There is no such object.
        BadResponse: It is no JSON.
    """
    try:
        return json.loads(read_bytes(storage, key))
    except (ValueError, RecursionError) as exc:
        raise BadResponse(f"{key.digest} is no JSON", where=key.path) from exc


def read_manifest(storage: Reads, digest: Digest) -> Manifest:
    """A manifest.

    Raises:
        NotFound: There is no such manifest.
        BadResponse: It is not one of pt2hub's, or of a newer one: it does not come back byte for byte.
    """
    manifest = decode(Manifest, read_json(storage, StorageKey.manifest(digest)), where=digest)
    if manifest.digest != digest:
        raise BadResponse("The manifest is damaged, or holds fields of a newer pt2hub", where=digest)
    return manifest


def named_by(*manifests: Manifest) -> dict[StorageKey, int]:
    """The manifests themselves and everything that they name, each with its size."""
    named: dict[StorageKey, int] = {}
    for manifest in manifests:
        named[StorageKey.manifest(manifest.digest)] = len(manifest.as_bytes())
        parts = (manifest.config, *manifest.layers)
        named |= {StorageKey.blob(part.digest): part.size for part in parts}
    return named


def read_config(storage: Reads, manifest: Manifest) -> ArtifactConfig:
    """The config of an artifact.

    Raises:
        NotFound: There is no such blob.
        BadResponse: It is not one of pt2hub's.
    """
    digest = manifest.config.digest
    return decode(ArtifactConfig, read_json(storage, StorageKey.blob(digest)), where=digest)
