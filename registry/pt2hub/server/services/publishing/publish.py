"""Publishing: turns a spec into a version with builds and their jobs, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.audit import Action
from pt2hub.domain.builds import readiness
from pt2hub.domain.publishing.compile_notes import explain_debug_logs, explain_options
from pt2hub.domain.publishing.spec import Spec, TargetSpec
from pt2hub.domain.targets import parse_target
from pt2hub.server.db.notifications import notify, notify_progress
from pt2hub.server.db.stores.builds.build_views import BuildViewStore
from pt2hub.server.db.stores.builds.builds import BuildStore, build_request
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.db.stores.performance.evaluations import EvaluationStore, newest_by_data
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.promotion.yanks import YankStore
from pt2hub.server.db.stores.publishing.documentation import DocumentationStore
from pt2hub.server.db.stores.publishing.labels import LabelStore
from pt2hub.server.db.stores.publishing.lineage import LineageStore
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.builds.priorities import check_priority
from pt2hub.server.services.builds.quotas import TeamQuotas
from pt2hub.server.services.builds.waits import explain_waits
from pt2hub.server.services.not_found import require_version
from pt2hub.server.services.publishing.labels import label_published
from pt2hub.server.services.publishing.lineage import check_parents, derive_published
from pt2hub.server.services.publishing.preview import build_preview, to_document
from pt2hub.server.services.publishing.requested_targets import resolve_targets
from pt2hub.server.services.publishing.version_creation import ensure_version
from pt2hub.server.services.publishing.version_files import check_attachable, list_files
from pt2hub.wire.responses import VersionView

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.limits import Limits
    from pt2hub.domain.principals import Principal
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.db.stores.publishing.versions import StoredVersion
    from pt2hub.server.services.publishing.submission_validation import SpecValidator
    from pt2hub.server.services.publishing.version_creation import EnsuredVersion
    from pt2hub.server.services.publishing.version_files import VersionFileService
    from pt2hub.wire.previews import PublishPreview

_MAX_PREVIEWED_BYTES = 4 << 20
"""Larger programs are not read by `check`: this much takes less than half a second, and most programs fit."""

_MAX_DERIVATIVES = 20
"""Versions derived from a version that its answer lists; its lineage has more."""
_MAX_EVALUATIONS = 50
"""Metrics on data sets that the answer about a version lists."""


class PublishService:
    """Publishes specs as versions, and reads versions."""

    def __init__(
        self,
        sessions: Sessions,
        queue: BuildQueue,
        validator: SpecValidator,
        files: VersionFileService,
        *,
        heartbeat_timeout: timedelta,
        limits: Limits,
    ) -> None:
        self._sessions = sessions
        self._queue = queue
        self._files = files
        self._validator = validator
        self._heartbeat_timeout = heartbeat_timeout
        self._limits = limits

    def submit(self, document: Mapping[str, Any], *, by: Actor, priority: int = 0) -> VersionView:
        """Create the version of a spec, or find the version with the same content and add missing targets.

        The version takes over the spec's settings, for attempts that begin from then on, and its documentation. Builds that are queued or
        running are joined; queued ones with a lower priority are raised to this one.

        Raises:
            Pt2hubError: The spec or a file that it names is invalid, see `SpecValidator.validate`.
            NoLiveWorker: `auto` is requested and no worker is live.
            Conflict: A target already has a build, with other overrides.
            QuotaExceeded: The team has too many builds, or stores too much.
        """
        check_priority(priority)
        submission = self._validator.validate(document)
        with self._sessions.begin() as session:
            quotas = TeamQuotas(session, self._limits)
            quotas.lock(submission.spec.model)
            targets = resolve_targets(session, submission.spec, self._heartbeat_timeout)
            check_parents(session, submission.derived_from)  # before the version exists, which is no parent
            ensured = ensure_version(session, submission, targets, by.principal)
            if ensured.created:
                quotas.check_bytes(ensured.version.model)
            version, present = ensured.version, BuildStore(session).requests(ensured.version.id)
            labels, kept = label_published(session, version, submission.labels, by=by.principal)
            parents, stays = derive_published(
                session, version, submission.derived_from, created=ensured.created, by=by.principal
            )
            targets.check(present)
            if not ensured.created:  # a new version has the files of its submission
                check_attachable(session, version, submission.documentation, quotas)
            raised = self._raise(session, version, targets.requests, priority)
            missing = [request for request in targets.requests if request.target not in present]
            quotas.check_builds(version.model, len(missing))
            self._add_builds(
                session, version, missing, by=by.principal, position=len(present), priority=priority
            )
            changed = {"targets": [item.target for item in missing], "raised": raised, "labels": labels}
            changed["derived_from"] = parents
            _record(session, by, ensured, changed, priority)
            notes = (
                *kept,
                *stays,
                *explain_options(submission.spec, map(build_request, targets.requests)),
                *explain_debug_logs(submission.spec, BuildStore(session).states(version.id)),
            )
            view = self._view(session, version, created=ensured.created, notes=notes)
        if ensured.created or not submission.documentation:
            return view
        self._files.attach(version, submission.documentation, by=by)
        return replace(view, files=self._files.files(version.model, version.number).files)

    def check(self, document: Mapping[str, Any]) -> PublishPreview:
        """Preview `submit`, with the same errors; nothing is written.

        It runs at each change of a spec, so it does not read a large program; `submit` does.

        Raises:
            Pt2hubError: The same as from `submit`.
        """
        submission = self._validator.validate(document, largest_program=_MAX_PREVIEWED_BYTES)
        with self._sessions.begin() as session:
            targets = resolve_targets(session, submission.spec, self._heartbeat_timeout)
            check_parents(session, submission.derived_from)
            quotas = TeamQuotas(session, self._limits)
            return build_preview(session, submission, targets, quotas, self._heartbeat_timeout)

    def add_target(self, model: str, number: int, target: str, *, by: Actor) -> VersionView:
        """Add a target to a version, or find its build; the version's own spec is submitted again with one more target.

        Raises:
            NotFound: The version does not exist.
            UnknownTarget: The target's name is malformed.
            Pt2hubError: As `submit`, for example if the version's program is newer than the target's torch.
        """
        parse_target(target)
        document = self.document(model, number)
        if not any(target in (item, _name(item)) for item in document["targets"]):
            document["targets"] = [*document["targets"], target]
        return self.submit(document, by=by)

    def document(self, model: str, number: int) -> dict[str, Any]:
        """Return the spec of a version as its author would write it, targets included, ready to publish again.

        Raises:
            NotFound: The version does not exist.
        """
        with self._sessions.begin() as session:
            version = require_version(session, model, number)
            return to_document(version, BuildStore(session).requests(version.id))

    def version(self, model: str, number: int) -> VersionView:
        """Return a version and its builds.

        Raises:
            NotFound: The version does not exist.
        """
        with self._sessions.begin() as session:
            return self._view(session, require_version(session, model, number))

    def spec_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a spec."""
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Spec.model_json_schema()}

    def _raise(
        self, session: Session, version: StoredVersion, requests: list[TargetSpec], priority: int
    ) -> list[str]:
        """Raise the priority of the version's queued builds, in rows and jobs; return those that were lower."""
        targets = [request.target for request in requests]
        if raised := BuildStore(session).raise_priority(version.id, targets, priority):
            self._queue.raise_priority(session, raised, priority)
            for build_id in raised:
                notify_progress(session, build_id)
        return raised

    def _add_builds(
        self,
        session: Session,
        version: StoredVersion,
        requests: list[TargetSpec],
        *,
        by: Principal,
        position: int,
        priority: int,
    ) -> None:
        """Add builds to a version that has `position` builds already; those of its first submission count for readiness."""
        for name in sorted(
            item.target for item in requests
        ):  # in a fixed order: submissions must not deadlock
            WorkerStore(session).add_target(parse_target(name))
        for index, request in enumerate(requests, position):
            build_id = BuildStore(session).add(
                version.id,
                request,
                position=index,
                first_submitted=position == 0,
                by=by,
                priority=priority,
            )
            self._queue.defer(session, build_id, queue=request.target, priority=priority)
            notify(session, build_id)  # a worker with measuring jobs in all slots frees one

    def _view(
        self, session: Session, version: StoredVersion, *, created: bool = False, notes: tuple[str, ...] = ()
    ) -> VersionView:
        views = BuildViewStore(session).views(version.id, heartbeat_timeout=self._heartbeat_timeout)
        lineage, evaluations = LineageStore(session), EvaluationStore(session)
        return VersionView(
            model=version.model,
            number=version.number,
            identity=version.identity,
            readiness=readiness(BuildStore(session).first_submitted(version.id)),
            created_at=version.created_at,
            spec=version.spec,
            settings=version.settings,
            pins=version.pins,
            builds=tuple(explain_waits(session, views)),
            weights=version.weights,
            golden=version.golden,
            created=created,
            notes=notes,
            published_by=version.published_by,
            yanked=version.yanked,
            yanks=YankStore(session).changes(version.id),
            labels=LabelStore(session).of_version(version.id),
            files=list_files(version, DocumentationStore(session).of(version)).files,
            derived_from=tuple(item.view for item in lineage.parents([version.id])),
            derivatives=tuple(item.view for item in lineage.children([version.id], limit=_MAX_DERIVATIVES)),
            evaluations=tuple(newest_by_data(evaluations.of_version(version.id)).values())[:_MAX_EVALUATIONS],
            aliases=tuple(AliasStore(session).on_versions([version.id]).get(version.id, ())),
        )


def _record(
    session: Session, by: Actor, ensured: EnsuredVersion, changed: dict[str, Any], priority: int
) -> None:
    """Record a submission, unless the same was submitted before.

    Args:
        changed: The `targets` added, the builds `raised`, the `labels` set and the parents (`derived_from`) added; empty
            ones are left out.
    """
    version, change = ensured.version, {name: value for name, value in changed.items() if value}
    if ensured.replaced is not None:
        change |= {"before": ensured.replaced, "after": version.settings}
    if not (ensured.created or change):
        return
    action = Action.VERSION_ADD_TARGET if "targets" in change else Action.VERSION_UPDATE
    audit_log.record(
        session,
        by,
        Action.VERSION_PUBLISH if ensured.created else action,
        f"{version.model}@{version.number}",
        models=[version.model],
        identity=version.identity,
        priority=priority,
        **change,
    )


def _name(target: Any) -> object:
    return target.get("target") if isinstance(target, dict) else target
