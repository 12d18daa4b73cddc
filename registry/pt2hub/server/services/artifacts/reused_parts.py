"""Parts of an artifact's code that come from other artifacts, which have the record of their kernels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import Region
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import team_of
from pt2hub.errors import BadResponse, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.artifacts.regions import RegionStore
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.artifacts.inspection import MAX_CONFIG_BYTES
from pt2hub.server.services.blobs.documents import read_verified
from pt2hub.wire.kernels import ReusedPart

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions

_UNREADABLE = (NotFound, TooLarge, DigestMismatch, BadResponse, ValueError, TypeError, RecursionError)
"""Errors of a config, with which no part is known; an unavailable storage fails the request."""


def find_reused_parts(sessions: Sessions, storage: BlobReader, artifact: Digest) -> tuple[ReusedPart, ...]:
    """Return the parts of an artifact that run code of others, each with the team's first artifact that has the part."""
    with sessions.begin() as session:
        facts = ArtifactStore(session).facts(artifact)
    if facts is None:
        return ()
    regions = [item for item in _regions(storage, Digest(facts["config"])) if item.code_reused_from]
    if not regions:
        return ()
    with sessions.begin() as session:
        keys = [region.key.digest for region in regions]
        first = RegionStore(session).first_holders(artifact, keys, team_of(facts["model"]))
    return tuple(
        ReusedPart(region.calls, region.modules, *first.get(region.key.digest, (None, "")))
        for region in regions
    )


def _regions(storage: BlobReader, config: Digest) -> tuple[Region, ...]:
    try:
        document = json.loads(read_verified(storage, StorageKey.blob(config), most=MAX_CONFIG_BYTES))
        return decode(tuple[Region, ...], storable(document.get("regions", [])))
    except (*_UNREADABLE, AttributeError):
        return ()
