"""Publish previews: what submitting a spec would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.publishing.compile_notes import explain_debug_logs, explain_options
from pt2hub.domain.publishing.spec import Spec
from pt2hub.domain.publishing.spec_settings import SETTINGS, find_setting, merge_settings
from pt2hub.server.db.stores.builds.builds import BuildStore, build_request
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.db.stores.publishing.documentation import DocumentationStore
from pt2hub.server.db.stores.publishing.labels import LabelStore
from pt2hub.server.db.stores.publishing.versions import StoredVersion, VersionStore
from pt2hub.server.services.builds.waits import never_offered
from pt2hub.server.services.publishing.labels import preview_labels
from pt2hub.server.services.publishing.lineage import check_derivations
from pt2hub.server.services.publishing.version_files import check_attachable
from pt2hub.wire.previews import PublishPreview, TargetPreview
from pt2hub.wire.responses import WaitReason

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.publishing.spec import TargetSpec
    from pt2hub.server.services.builds.quotas import TeamQuotas
    from pt2hub.server.services.publishing.requested_targets import RequestedTargets
    from pt2hub.server.services.publishing.submission_validation import ValidSubmission
    from pt2hub.wire.responses import TargetView

_SOURCE_KINDS = ("factory", "code", "program")
"""Fields that say what kind a source is; a written spec has them first."""


def build_preview(
    session: Session,
    submission: ValidSubmission,
    targets: RequestedTargets,
    quotas: TeamQuotas,
    heartbeat_timeout: timedelta,
) -> PublishPreview:
    """Return the preview of submitting a spec.

    Raises:
        Conflict: A target already has a build, with other overrides.
        InvalidInput: The no-op toolchain's target would be mixed with others.
        LineageCycle: The version would be derived from itself.
        FileFixed: A file has the name of one of the version that never changes.
        QuotaExceeded: The team has too many builds, or stores too much.
    """
    spec, versions = submission.spec, VersionStore(session)
    found = _found(versions, spec)
    present = BuildStore(session).requests(found.id) if found else {}
    targets.check(present)
    if found:
        check_derivations(session, found, submission.derived_from)
        check_attachable(session, found, submission.documentation, quotas)
    else:
        quotas.check_bytes(spec.model)
    quotas.check_builds(spec.model, sum(item.target not in present for item in targets.requests))
    numbers = versions.numbers(spec.model)
    number = found.number if found else (numbers.newest if numbers else 0) + 1
    now = {item.key: item.value for item in LabelStore(session).of_version(found.id)} if found else {}
    return PublishPreview(
        model=spec.model,
        number=number,
        created=found is None,
        first=numbers is None,
        identity=spec.identity(),
        targets=_targets(session, targets.requests, found, heartbeat_timeout),
        blobs={path: blob["size"] for path, blob in submission.blobs.items()},
        unread=submission.unread,
        settings=_changed_settings(found, spec),
        notes=(
            *preview_labels(now, submission.labels, name=f"{spec.model}@{number}"),
            *explain_options(spec, map(build_request, targets.requests)),
            *explain_debug_logs(spec, BuildStore(session).states(found.id) if found else ()),
        ),
        documentation=_changed_documentation(session, submission, found) if found else (),
    )


def _changed_documentation(
    session: Session, submission: ValidSubmission, found: StoredVersion
) -> tuple[str, ...]:
    """Return the names of documentation files that the existing version lacks, or has with other content."""
    now = DocumentationStore(session).of(found).files
    return tuple(item.name for item in submission.documentation if item not in now)


def _changed_settings(found: StoredVersion | None, spec: Spec) -> tuple[str, ...]:
    """Return which settings of the existing version would be replaced."""
    if found is None:
        return ()
    wanted = spec.settings()
    return tuple(
        name for name in SETTINGS if find_setting(found.settings, name) != find_setting(wanted, name)
    )


def _found(versions: VersionStore, spec: Spec) -> StoredVersion | None:
    model_id = versions.model_id(spec.model)
    return versions.by_identity(model_id, spec.identity()) if model_id is not None else None


def _targets(
    session: Session, requests: list[TargetSpec], found: StoredVersion | None, heartbeat_timeout: timedelta
) -> tuple[TargetPreview, ...]:
    states = dict(BuildStore(session).states(found.id)) if found else {}
    workers = WorkerStore(session)
    offers, known = {view.name: view for view in workers.targets(heartbeat_timeout)}, workers.list_known()
    return tuple(
        TargetPreview(name, str(states[name]))
        if name in states
        else TargetPreview(name, None, _ahead(offers.get(name)), _wait(name, offers.get(name), known))
        for name in (request.target for request in requests)
    )


def _ahead(offer: TargetView | None) -> int:
    return offer.queued if offer else 0


def _wait(target: str, offer: TargetView | None, known: list[str]) -> WaitReason | None:
    if offer is None or offer.last_seen is None:
        return never_offered(target, known)
    return None if offer.live_workers else WaitReason("no_live_worker")


def to_document(version: StoredVersion, requests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a version's spec as its author would write it, fields in the order of the schema."""
    spec = Spec.from_canonical(merge_settings(version.spec, version.settings)).model_dump(
        mode="json", exclude_defaults=True
    )
    source = spec["source"]
    spec["source"] = {kind: source[kind] for kind in _SOURCE_KINDS if kind in source} | source
    origin = version.pins.get("weights_from")
    document = {**spec, **({"weights_from": origin} if origin else {})}
    targets = [name if set(request) <= {"target"} else request for name, request in requests.items()]
    return {name: document[name] for name in Spec.model_fields if name in document} | {"targets": targets}
