"""Creation of a version from a valid submission."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.errors import BlobGone
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.publishing.versions import NewVersion, StoredVersion, VersionStore
from pt2hub.server.services.publishing.submission_validation import ValidSubmission, file_path, not_uploaded
from pt2hub.server.services.reindexing import check_reindexed

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal
    from pt2hub.server.services.publishing.requested_targets import RequestedTargets


@dataclass(frozen=True, slots=True)
class EnsuredVersion:
    """The version of a spec.

    Attributes:
        created: Whether this submission created it.
        replaced: The settings that this submission replaced; None if it replaced none.
    """

    version: StoredVersion
    created: bool = False
    replaced: dict[str, Any] | None = None


def ensure_version(
    session: Session, submission: ValidSubmission, targets: RequestedTargets, by: Principal
) -> EnsuredVersion:
    """Return the version of a spec; its blobs are protected from collection."""
    ensured = _find_or_add(session, submission, targets, by)
    changing = {file_path(item.name) for item in submission.files if item.is_documentation}
    kept = (
        set() if ensured.created else changing
    )  # of a version that exists, documentation may be replaced later
    blobs = {path: blob for path, blob in submission.blobs.items() if path not in kept}
    _refer(session, ensured.version, blobs)
    return ensured


def _find_or_add(
    session: Session, submission: ValidSubmission, targets: RequestedTargets, by: Principal
) -> EnsuredVersion:
    spec, versions = submission.spec, VersionStore(session)
    identity, settings = spec.identity(), spec.settings()
    # One submission per model at a time from here on: equal ones must end in one version.
    model_id = versions.lock_model(spec.model)
    if found := versions.by_identity(model_id, identity):
        if found.settings == settings:
            return EnsuredVersion(found)
        versions.set_settings(found.id, settings)
        return EnsuredVersion(replace(found, settings=settings), replaced=found.settings)
    check_reindexed(session, spec.model)
    new = NewVersion(
        identity=identity,
        spec=spec.canonical(),
        settings=settings,
        pins=_pins(submission, targets),
        weights=spec.weights,
        published_by=by,
    )
    return EnsuredVersion(versions.add(model_id, new), created=True)


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
    """Return what the submission pins: packages by target, blobs by path, attached files, targets in order.

    The weights' origin is here and not in the spec: the same weights are the same version, wherever they came from.
    """
    names = [request.target for request in targets.requests]
    origin = submission.spec.weights_from
    return {
        "packages": {name: targets.packages[name] for name in names if name in targets.packages},
        "blobs": submission.blobs,
        "targets": names,
        **({"files": encode(submission.files)} if submission.files else {}),
        **({"weights_from": origin} if origin else {}),
    }
