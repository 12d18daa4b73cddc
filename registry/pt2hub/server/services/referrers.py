"""What manifests that belong to an artifact bring: builds made them, out of what strangers' code said."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import PROFILE_TYPE
from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.domain.profiles import MOST_PROFILE_BYTES, Profile, read_profile
from pt2hub.errors import BadResponse, CorruptArchive, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.documents import read_manifest, read_proven

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.domain.artifacts import Descriptor
    from pt2hub.server.blobs.ports import Reads

MOST_MANIFEST = 1 << 20
_DIGEST = re.compile(DIGEST_PATTERN)
_SHOWN = (NotFound, TooLarge, DigestMismatch, CorruptArchive, BadResponse)
"""What becomes a sentence; a storage that does not answer fails whoever asks."""


def payload(storage: Reads, referrer: Digest) -> Descriptor:
    """The blob that a referrer brings: its first layer.

    Args:
        storage: Holds the referrer.
        referrer: Its digest.

    Raises:
        NotFound: The storage lost the referrer.
        CorruptArchive: It is too large, damaged, or names no blob.
    """
    key = StorageKey.manifest(referrer)
    if (storage.size(key) or 0) > MOST_MANIFEST:
        raise CorruptArchive("The referrer is too large for a manifest", where=referrer)
    try:
        layers = read_manifest(storage, referrer).layers
    except (BadResponse, RecursionError) as error:
        raise CorruptArchive("The referrer is no manifest of pt2hub's", where=referrer) from error
    if not layers or not _DIGEST.fullmatch(layers[0].digest):
        raise CorruptArchive("The referrer names no blob", where=referrer)
    return layers[0]


def kept_profile(storage: Reads, referrers: Iterable[tuple[str, str]]) -> tuple[Profile | None, str | None]:
    """The table of where an artifact's calls spend their time.

    Args:
        storage: Holds the artifact's referrers.
        referrers: Digest and type of each.

    Returns:
        The table, None where there is none; and why one that there is cannot be shown, a sentence.
    """
    found = sorted(digest for digest, kind in referrers if kind == PROFILE_TYPE)
    if not found:
        return None, None
    try:
        layer = payload(storage, Digest(found[0]))
        data = read_proven(storage, StorageKey.blob(layer.digest), most=MOST_PROFILE_BYTES)
        return read_profile(storable(json.loads(data))), None
    except _SHOWN as error:
        return None, error.message
    except (ValueError, RecursionError):
        return None, "It is no JSON that can be shown"
