"""What the references of a bundle mean, recorded on the machine that imported it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.client.artifacts.resolutions import ResolutionStore
from pt2hub.client.exports.bundle import REFERENCE, RESOLVED_AT
from pt2hub.domain.names import Reference
from pt2hub.errors import CorruptArchive, InvalidInput
from pt2hub.wire.resolution import ArtifactRef, ResolvedReference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.client.connection import Connection
    from pt2hub.client.exports.bundle import Bundle
    from pt2hub.client.exports.exporter import ImportedArtifact
    from pt2hub.domain.digests import Digest


def remember(connection: Connection, bundle: Bundle, found: Sequence[ImportedArtifact]) -> None:
    """Record what the references of a bundle mean, as if the server had answered when it was written.

    Raises:
        CorruptArchive: A reference names something else than the artifact it stands beside.
    """
    store = ResolutionStore(connection.config.cache, connection.config.url)
    by_version: dict[str, tuple[ArtifactRef, ...]] = {}
    for item in found:
        by_version[item.reference] = (
            *by_version.get(item.reference, ()),
            ArtifactRef(item.target, item.digest, ""),
        )
    for entry, item in zip(bundle.manifests, found, strict=True):
        model, _, number = item.reference.partition("@")
        for reference in {item.reference, entry.get(REFERENCE, item.reference)}:
            if not _names(reference, model, int(number), item.digest):
                raise CorruptArchive(
                    f"The bundle calls {item.reference} {reference[:200]!a}", where=str(bundle.path)
                )
            resolved = ResolvedReference(reference, model, int(number), by_version[item.reference])
            _keep(store, reference, resolved, entry)


def _names(reference: str, model: str, number: int, digest: Digest) -> bool:
    """Return whether a reference can mean an artifact of this version."""
    try:
        parsed = Reference.parse(reference)
    except InvalidInput:
        return False
    return parsed.allows_version(model, number) and digest.startswith(parsed.digest_start)


def _keep(
    store: ResolutionStore, reference: str, resolved: ResolvedReference, entry: Mapping[str, str]
) -> None:
    """Record a resolution of a bundle, unless a later one is known; other targets of the same version stay."""
    try:
        at = float(entry.get(RESOLVED_AT, "0"))
    except ValueError:
        at = 0.0
    known = store.find(reference)
    if known and known.resolved.number == resolved.number:
        brought = {item.target for item in resolved.artifacts}
        others = (item for item in known.resolved.artifacts if item.target not in brought)
        merged = replace(resolved, artifacts=(*resolved.artifacts, *others), storage=known.resolved.storage)
        store.record(reference, merged, at=max(at, known.resolved_at))
    elif known is None or known.resolved_at < at:
        store.record(reference, resolved, at=at)
