"""Publishing: turns a spec into a version with builds and their jobs, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import readiness
from pt2hub.domain.digests import Digest
from pt2hub.domain.publishing.spec import DEFAULT_FACTORIES, CodeSource, ProgramSource, Spec, TargetSpec
from pt2hub.domain.targets import parse_target
from pt2hub.errors import BlobGone, Detail, NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.sources import StoredSource
from pt2hub.server.db.notifications import notify, notify_progress
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.builds.build_views import BuildViewStore
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.db.stores.publishing.versions import StoredVersion, VersionStore
from pt2hub.server.services.builds.priorities import check_priority
from pt2hub.server.services.builds.waits import explain_waits
from pt2hub.server.services.not_found import require_version
from pt2hub.server.services.publishing.example_checks import check_tensors
from pt2hub.server.services.publishing.preview import ValidatedSubmission, build_preview, to_document
from pt2hub.server.services.publishing.requested_targets import (
    check_overrides,
    check_real,
    check_targets,
    expand,
)
from pt2hub.server.services.publishing.source_checks import check_source, check_uploaded
from pt2hub.server.services.publishing.spec_errors import parse_spec
from pt2hub.wire.responses import VersionView

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.views.previews import PublishPreview

_MAX_PREVIEWED_BYTES = 4 << 20
"""Larger programs are not read by `check`: this much takes less than half a second, and most programs fit."""


class PublishService:
    """Publishes specs as versions, and reads versions."""

    def __init__(
        self,
        sessions: Sessions,
        queue: BuildQueue,
        storage: BlobReader,
        *,
        heartbeat_timeout: timedelta,
        factories: tuple[str, ...] = DEFAULT_FACTORIES,
    ) -> None:
        self._sessions = sessions
        self._queue = queue
        self._storage = storage
        self._heartbeat_timeout = heartbeat_timeout
        self._factories = factories

    def submit(self, document: Mapping[str, Any], *, priority: int = 0) -> VersionView:
        """Create the version of a spec, or find the version with the same content and add missing targets.

        The version takes over the spec's `limits` and `measure`, for attempts that begin from then on. Builds that
        are queued or running are joined; queued ones with a lower priority are raised to this one.

        Raises:
            InvalidInput: Fields are wrong; often a subclass, see `spec_errors`.
            UnknownFactory: The factory's module is not on the operator's list.
            NotFound: The spec names a blob that was not uploaded.
            BadCodeArchive: The code archive is malformed.
            UnknownEntry: The uploaded code lacks the entry's module.
            BadProgram: The program is malformed.
            ProgramNewer: A named target has an older torch than the program.
            UsageError: The uploaded program or its weights do not fit the spec, see `sources`.
            NoLiveWorker: `auto` is requested and no worker is live.
            Conflict: A target already has a build, with other overrides.
        """
        check_priority(priority)
        spec, blobs = self._validate(document)
        files = self._open_blobs(blobs)
        check_tensors(spec, files)
        check_uploaded(spec, files)
        with self._sessions.begin() as session:
            live, requests = self._requests(session, spec)
            version, created = self._ensure_version(session, spec, _pins(spec, requests, live, blobs))
            _refer(session, version, blobs)
            present = BuildStore(session).requests(version.id)
            check_overrides(spec, requests, present)
            check_real({*present, *(request.target for request in requests)})
            self._raise(session, version, requests, priority)
            missing = [request for request in requests if request.target not in present]
            self._add_builds(session, version, missing, position=len(present), priority=priority)
            return self._view(session, version, created=created)

    def check(self, document: Mapping[str, Any]) -> PublishPreview:
        """Preview `submit`, with the same errors; nothing is written.

        It runs at each change of a spec, so it does not read a large program; `submit` does.

        Raises:
            Pt2hubError: The same as from `submit`.
        """
        spec, blobs = self._validate(document)
        files = self._open_blobs(blobs)
        check_tensors(spec, files)
        unread = tuple(
            path for path in ("source.program",) if path in files and files[path].size > _MAX_PREVIEWED_BYTES
        )
        if not unread:
            check_uploaded(spec, files)
        with self._sessions.begin() as session:
            _, requests = self._requests(session, spec)
            return build_preview(
                session, ValidatedSubmission(spec, requests, blobs, unread), self._heartbeat_timeout
            )

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

    def _validate(self, document: Mapping[str, Any]) -> tuple[Spec, dict[str, dict[str, Any]]]:
        """Return the spec, valid in itself, and the blobs that it names."""
        spec = parse_spec(document)
        check_source(spec.source, self._factories)
        check_targets(spec)
        return spec, self._resolve_blobs(spec)

    def _requests(self, session: Session, spec: Spec) -> tuple[dict[str, dict[str, Any]], list[TargetSpec]]:
        """Return the packages of the live targets, and the targets that a spec requests."""
        workers = WorkerStore(session)
        live = workers.live_packages(self._heartbeat_timeout)
        usable = sorted(name for name in live if parse_target(name).exists)
        return live, expand(spec.requests(), usable, known=() if usable else workers.list_known())

    def _resolve_blobs(self, spec: Spec) -> dict[str, dict[str, Any]]:
        """Return digest and size of every blob the spec names, by path."""
        named = {
            "weights": spec.weights,
            "source.code": spec.source.code if isinstance(spec.source, CodeSource) else None,
            "source.program": spec.source.program if isinstance(spec.source, ProgramSource) else None,
        } | {f"inputs[{index}].example": item.example for index, item in enumerate(spec.inputs)}
        sizes = {
            path: (digest, self._storage.size(StorageKey.blob(Digest(digest))))
            for path, digest in named.items()
            if digest is not None
        }
        missing = {path: digest for path, (digest, size) in sizes.items() if size is None}
        if missing:
            raise _not_uploaded(missing)
        return {path: {"digest": digest, "size": size} for path, (digest, size) in sizes.items()}

    def _open_blobs(self, blobs: Mapping[str, Mapping[str, Any]]) -> dict[str, StoredSource]:
        """Return readable sources of the blobs; a blob that is named twice is one source."""
        sizes = {blob["digest"]: blob["size"] for blob in blobs.values()}
        files = {
            digest: StoredSource(self._storage, StorageKey.blob(Digest(digest)), size)
            for digest, size in sizes.items()
        }
        return {path: files[blob["digest"]] for path, blob in blobs.items()}

    def _ensure_version(
        self, session: Session, spec: Spec, pins: dict[str, Any]
    ) -> tuple[StoredVersion, bool]:
        versions = VersionStore(session)
        # One submission per model at a time from here on: equal ones must end in one version.
        model_id = versions.lock_model(spec.model)
        if found := versions.by_identity(model_id, spec.identity()):
            if found.settings == spec.settings():
                return found, False
            versions.set_settings(found.id, spec.settings())
            return replace(found, settings=spec.settings()), False
        version = versions.add(
            model_id,
            identity=spec.identity(),
            spec=spec.canonical(),
            settings=spec.settings(),
            pins=pins,
            weights=spec.weights,
        )
        return version, True

    def _raise(
        self, session: Session, version: StoredVersion, requests: list[TargetSpec], priority: int
    ) -> None:
        """Raise the priority of the version's queued builds, in rows and jobs."""
        targets = [request.target for request in requests]
        if raised := BuildStore(session).raise_priority(version.id, targets, priority):
            self._queue.raise_priority(session, raised, priority)
            for build_id in raised:
                notify_progress(session, build_id)

    def _add_builds(
        self,
        session: Session,
        version: StoredVersion,
        requests: list[TargetSpec],
        *,
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
                version.id, request, position=index, first_submitted=position == 0, priority=priority
            )
            self._queue.defer(session, build_id, queue=request.target, priority=priority)
            notify(session, build_id)  # a worker with measuring jobs in all slots frees one

    def _view(self, session: Session, version: StoredVersion, *, created: bool = False) -> VersionView:
        views = BuildViewStore(session).views(version.id, heartbeat_timeout=self._heartbeat_timeout)
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
        )


def _refer(session: Session, version: StoredVersion, blobs: dict[str, dict[str, Any]]) -> None:
    """Protect the blobs that the spec names from collection."""
    keys = {StorageKey.blob(Digest(blob["digest"])): blob["size"] for blob in blobs.values()}
    try:
        BlobStore(session).refer(keys, f"version:{version.id}")
    except BlobGone as exc:  # seen a moment ago, but unconfirmed or being deleted
        gone = set(exc.context["digests"])
        missing = {path: blob["digest"] for path, blob in blobs.items() if blob["digest"] in gone}
        raise _not_uploaded(missing) from exc


def _not_uploaded(missing: Mapping[str, str]) -> NotFound:
    return NotFound(
        "The spec names a blob that was not uploaded",
        where=next(iter(missing)),
        hint="Upload it first: POST /api/v1/uploads, or PUT /api/v1/blobs/<digest> (pt2hub publish does it with "
        "--weights, --code and --program).",
        details=tuple(Detail(path, "not uploaded", given=digest) for path, digest in missing.items()),
    )


def _pins(
    spec: Spec,
    requests: list[TargetSpec],
    live: dict[str, dict[str, Any]],
    blobs: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Return what the submission pins: packages by target, blobs by path, targets in order.

    The weights' origin is here and not in the spec: the same weights are the same version, wherever they came from.
    """
    names = [request.target for request in requests]
    return {
        "packages": {name: live[name] for name in names if name in live},
        "blobs": blobs,
        "targets": names,
        **({"weights_from": spec.weights_from} if spec.weights_from else {}),
    }
