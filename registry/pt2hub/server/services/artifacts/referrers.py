"""Reading of an artifact's referrers, within size limits; their contents are untrusted."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import BASELINE_PROFILE_TYPE, PROFILE_TYPE
from pt2hub.domain.digests import DIGEST_PATTERN, Digest
from pt2hub.domain.performance.profiles import MAX_PROFILE_BYTES, TORCH_COMPILE, Profile, read_profile
from pt2hub.errors import BadResponse, CorruptArchive, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.blobs.documents import read_manifest, read_verified

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.domain.artifacts import Descriptor
    from pt2hub.server.blobs.ports import BlobReader

MAX_MANIFEST_BYTES = 1 << 20
_DIGEST = re.compile(DIGEST_PATTERN)
_SHOWN = (NotFound, TooLarge, DigestMismatch, CorruptArchive, BadResponse)
"""Errors that are shown as text; an unavailable storage fails the request."""


def payload(storage: BlobReader, referrer: Digest) -> Descriptor:
    """Return a referrer's blob: its first layer.

    Raises:
        NotFound: The referrer is missing from storage.
        CorruptArchive: It is too large, damaged, or names no blob.
    """
    key = StorageKey.manifest(referrer)
    if (storage.size(key) or 0) > MAX_MANIFEST_BYTES:
        raise CorruptArchive("The referrer is too large for a manifest", where=referrer)
    try:
        layers = read_manifest(storage, referrer).layers
    except (BadResponse, RecursionError) as error:
        raise CorruptArchive("The referrer is not a pt2hub manifest", where=referrer) from error
    if not layers or not _DIGEST.fullmatch(layers[0].digest):
        raise CorruptArchive("The referrer names no blob", where=referrer)
    return layers[0]


@dataclass(frozen=True, slots=True)
class KeptProfiles:
    """Profiles of calls: where they spend their time.

    Attributes:
        artifact: The artifact's; None where there is none.
        torch_compile: That of torch.compile; None where there is none, or where it cannot be shown.
        problem: Why the artifact's cannot be shown, else None.
    """

    artifact: Profile | None = None
    torch_compile: Profile | None = None
    problem: str | None = None


def kept_profiles(storage: BlobReader, referrers: Iterable[tuple[str, str]]) -> KeptProfiles:
    """Return an artifact's profiles.

    Args:
        referrers: Digest and media type of each.
    """
    kinds: dict[str, list[str]] = {}
    for digest, kind in referrers:
        kinds.setdefault(kind, []).append(digest)
    own, problem = _profile(storage, kinds.get(PROFILE_TYPE, ()))
    other, _ = _profile(storage, kinds.get(BASELINE_PROFILE_TYPE, ()))
    if other is not None and other.implementation != TORCH_COMPILE:
        other = None
    return KeptProfiles(own, other, problem)


def _profile(storage: BlobReader, referrers: Iterable[str]) -> tuple[Profile | None, str | None]:
    """Return the profile of the first of some referrers, or the reason why it cannot be shown."""
    found = sorted(referrers)
    if not found:
        return None, None
    try:
        layer = payload(storage, Digest(found[0]))
        data = read_verified(storage, StorageKey.blob(layer.digest), most=MAX_PROFILE_BYTES)
        return read_profile(storable(json.loads(data))), None
    except _SHOWN as error:
        return None, error.message
    except (ValueError, RecursionError):
        return None, "The profile is not valid JSON"
