"""Rebuilds the rows and references of blobs from storage and from the other tables."""

from __future__ import annotations

import re
from itertools import groupby, islice
from typing import TYPE_CHECKING

from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.domain.storage import FIRST
from pt2hub.errors import BadResponse, BlobDamaged, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.builds.logs import LogStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.services.blobs.damage import DamageService
from pt2hub.server.services.blobs.documents import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.storage import Kind
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.publishing.versions import StoredVersion

_KINDS: tuple[Kind, ...] = ("blobs", "manifests")
_BATCH = 500


class BlobIndex:
    """Rebuilds rows and references of stored blobs; blobs missing from storage are recorded as damaged."""

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        self._sessions = sessions
        self._storage = storage
        self._damage = DamageService(sessions, storage)

    def restore_rows(self) -> None:
        """Add a row for every stored object, at its highest generation."""
        for kind in _KINDS:
            latest = self._latest(kind)
            while batch := list(islice(latest, _BATCH)):
                with self._sessions.begin() as session:
                    unknown = BlobStore(session).unknown(batch)
                sizes = {key: self._storage.size(key) for key in unknown}
                with self._sessions.begin() as session:
                    BlobStore(session).restore({key: size for key, size in sizes.items() if size is not None})

    def refer_versions(self, unreadable: dict[str, str]) -> None:
        """Add each version's references: the blobs that its spec names, its weights and its golden values.

        Args:
            unreadable: Takes the digests of golden documents that are damaged or missing, with reasons.
        """
        after = 0
        while versions := self._versions(after):
            needed = {version.id: self._needed_keys(version, unreadable) for version in versions}
            with self._sessions.begin() as session:
                unstored = {
                    version_id: keys - BlobStore(session).refer_stored(keys, f"version:{version_id}")
                    for version_id, keys in needed.items()
                }
            for version_id, keys in unstored.items():
                if keys:
                    self._damage.record_missing(dict.fromkeys(keys, 0), f"version:{version_id}")
            after = versions[-1].id

    def refer_logs(self) -> None:
        """Add the references of archived logs."""
        after = ("", 0)
        while True:
            with self._sessions.begin() as session:
                logs = LogStore(session).page(after, _BATCH)
                for build, attempt, digest in logs:
                    BlobStore(session).refer_stored([StorageKey.blob(digest)], f"log:{build}:{attempt}")
            if not logs:
                return
            after = logs[-1][:2]

    def _latest(self, kind: Kind) -> Iterator[StorageKey]:
        """Yield the highest generation of every stored object; generations are listed together."""
        for _, keys in groupby(self._storage.keys(kind), lambda key: key.digest):
            yield max(keys, key=lambda key: key.generation or FIRST)

    def _versions(self, after: int) -> list[StoredVersion]:
        with self._sessions.begin() as session:
            return VersionStore(session).page(after, _BATCH)

    def _needed_keys(self, version: StoredVersion, unreadable: dict[str, str]) -> set[StorageKey]:
        named = {blob["digest"] for blob in version.pins.get("blobs", {}).values()}
        named |= {digest for digest in (version.weights, version.golden) if digest}
        if version.golden:
            named |= self._golden_parts(version.golden, unreadable)
        return {StorageKey.blob(Digest(digest)) for digest in named}

    def _golden_parts(self, golden: Digest, unreadable: dict[str, str]) -> set[str]:
        """Return the blobs that a golden document names; none where it is missing or damaged."""
        try:
            document = read_json(self._storage, StorageKey.blob(golden))
        except (BadResponse, TooLarge):
            return set()
        except (BlobDamaged, NotFound) as exc:
            unreadable[golden] = str(exc)
            return set()
        parts = (document.get(name) for name in ("inputs", "outputs")) if isinstance(document, dict) else ()
        return {part for part in parts if isinstance(part, str) and re.fullmatch(DIGEST_PATTERN, part)}
