"""Documentation that versions had before it was changed, and that the collector has not taken yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import DOCUMENTATION_TYPE, MODEL, VERSION
from pt2hub.errors import BadResponse, BlobDamaged, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.retention.shared_blobs import SharedBlobStore
from pt2hub.server.services.blobs.documents import named_by, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.domain.artifacts import Manifest
    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions

_THREADS = 8
"""Readings beside each other: a storage elsewhere takes some milliseconds for each."""


def find_earlier_documentation(
    sessions: Sessions, storage: Storage, versions: Iterable[tuple[str, int]]
) -> list[StorageKey]:
    """Return the manifests and files of documentation that versions had before.

    Nothing refers to them any more; the manifests say to which version they belonged.

    Args:
        versions: Models and numbers.

    Raises:
        StorageUnavailable: The storage does not answer.
    """
    wanted = {(model, str(number)) for model, number in versions}
    with sessions.begin() as session:
        digests = SharedBlobStore(session).unneeded_manifests()
    found: set[StorageKey] = set()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="manifest") as pool:
        for manifest in pool.map(partial(_read, storage), digests):
            if manifest and manifest.artifactType == DOCUMENTATION_TYPE and _version_of(manifest) in wanted:
                found |= named_by(manifest).keys() - {StorageKey.blob(manifest.config.digest)}
    return sorted(found)


def _read(storage: Storage, digest: Digest) -> Manifest | None:
    """Return a manifest; None if it is none, or is gone."""
    try:
        return read_manifest(storage, digest)
    except (BadResponse, BlobDamaged, NotFound, TooLarge):
        return None


def _version_of(manifest: Manifest) -> tuple[str | None, str | None]:
    return manifest.annotations.get(MODEL), manifest.annotations.get(VERSION)
