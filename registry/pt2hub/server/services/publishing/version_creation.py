"""Creation of a version from a valid submission."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import Digest
from pt2hub.errors import BlobGone
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.publishing.versions import StoredVersion, VersionStore
from pt2hub.server.services.publishing.submission_validation import ValidSubmission, not_uploaded

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.server.services.publishing.requested_targets import RequestedTargets


def ensure_version(
    session: Session, submission: ValidSubmission, targets: RequestedTargets
) -> tuple[StoredVersion, bool]:
    """Return the version of a spec, and whether it was created; its blobs are protected from collection."""
    version, created = _find_or_add(session, submission, targets)
    _refer(session, version, submission.blobs)
    return version, created


def _find_or_add(
    session: Session, submission: ValidSubmission, targets: RequestedTargets
) -> tuple[StoredVersion, bool]:
    spec, versions = submission.spec, VersionStore(session)
    identity, settings = spec.identity(), spec.settings()
    # One submission per model at a time from here on: equal ones must end in one version.
    model_id = versions.lock_model(spec.model)
    if found := versions.by_identity(model_id, identity):
        if found.settings == settings:
            return found, False
        versions.set_settings(found.id, settings)
        return replace(found, settings=settings), False
    version = versions.add(
        model_id,
        identity=identity,
        spec=spec.canonical(),
        settings=settings,
        pins=_pins(submission, targets),
        weights=spec.weights,
    )
    return version, True


def _refer(session: Session, version: StoredVersion, blobs: dict[str, dict[str, Any]]) -> None:
    """Protect the blobs that the spec names from collection."""
    keys = {StorageKey.blob(Digest(blob["digest"])): blob["size"] for blob in blobs.values()}
    try:
        BlobStore(session).refer(keys, f"version:{version.id}")
    except BlobGone as exc:  # seen a moment ago, but unconfirmed or being deleted
        gone = set(exc.context["digests"])
        missing = {path: blob["digest"] for path, blob in blobs.items() if blob["digest"] in gone}
        raise not_uploaded(missing) from exc


def _pins(submission: ValidSubmission, targets: RequestedTargets) -> dict[str, Any]:
    """Return what the submission pins: packages by target, blobs by path, targets in order.

    The weights' origin is here and not in the spec: the same weights are the same version, wherever they came from.
    """
    names = [request.target for request in targets.requests]
    origin = submission.spec.weights_from
    return {
        "packages": {name: targets.packages[name] for name in names if name in targets.packages},
        "blobs": submission.blobs,
        "targets": names,
        **({"weights_from": origin} if origin else {}),
    }
