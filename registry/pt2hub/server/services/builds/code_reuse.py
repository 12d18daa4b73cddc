"""Compiled code of earlier artifacts that a build may reuse.

Only from the same team: a build that runs hostile code can claim any key for its result, and verification proves that code
computes the right thing, not that it does nothing else.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import CODE_TYPE
from pt2hub.domain.names import team_of
from pt2hub.domain.publications import ReusableCode, ReusableRegion
from pt2hub.errors import BadResponse, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts.artifacts import MAX_CANDIDATES, ArtifactStore
from pt2hub.server.db.stores.artifacts.regions import RegionStore
from pt2hub.server.services.blobs.documents import read_config, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions


class CodeReuse:
    """Finds code by program key, for whole programs and for regions."""

    def __init__(self, sessions: Sessions, storage: BlobReader) -> None:
        self._sessions = sessions
        self._storage = storage

    def find_code(self, program_key: Digest, *, model: str) -> ReusableCode | None:
        """Return compiled code of a whole program, if its bytes still exist.

        Args:
            model: The model to be built, `team/name`.
        """
        with self._sessions.begin() as session:
            candidates = ArtifactStore(session).with_key(program_key, team_of(model))
        return next(filter(None, map(self._open, candidates)), None)

    def find_regions(self, keys: Collection[Digest], *, model: str) -> dict[Digest, ReusableRegion]:
        """Return compiled code of parts whose bytes still exist, by program key.

        Args:
            model: The model to be built, `team/name`.
        """
        with self._sessions.begin() as session:
            holders = RegionStore(session).holders(keys, team_of(model), limit=MAX_CANDIDATES)
        # Few artifacts for many parts: each is a download of its code layer.
        parts = Counter(artifact for artifacts in holders.values() for artifact in artifacts)
        open_once = functools.cache(self._open)
        found = {}
        for key, artifacts in holders.items():
            ordered = sorted(artifacts, key=lambda artifact: -parts[artifact])
            if region := _first_region(key, ordered, open_once):
                found[key] = region
        return found

    def _open(self, artifact: Digest) -> ReusableCode | None:
        """Return an artifact's code; None after a lost or damaged object, since reuse only saves time."""
        try:
            manifest = read_manifest(self._storage, artifact)
            code = manifest.layer(CODE_TYPE)
            if code and self._storage.size(StorageKey.blob(code.digest)) == code.size:
                return ReusableCode(code=code, config=read_config(self._storage, manifest))
        except (NotFound, BadResponse, DigestMismatch, TooLarge):
            pass
        return None


def _first_region(
    key: Digest, artifacts: Iterable[Digest], read: Callable[[Digest], ReusableCode | None]
) -> ReusableRegion | None:
    for code in filter(None, map(read, artifacts)):
        for region in code.config.regions:
            if region.key.digest == key and not region.key.never_reused:
                return ReusableRegion(code.code, region)
    return None
