"""Publishing: from a spec to a version with builds and their jobs, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import readiness
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import parse_model_name
from pt2hub.domain.specs import DEFAULT_FACTORIES, CodeSource, ProgramSource, Spec, TargetSpec
from pt2hub.domain.targets import parse_target
from pt2hub.errors import BlobGone, Detail, NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.sources import StoredSource
from pt2hub.server.db.notifications import notify, notify_progress
from pt2hub.server.db.stores.blobs import BlobStore
from pt2hub.server.db.stores.build_views import BuildViewStore
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.versions import StoredVersion, VersionStore
from pt2hub.server.db.stores.workers import WorkerStore
from pt2hub.server.services import missing
from pt2hub.server.services.examples import check_tensors
from pt2hub.server.services.priorities import check_priority
from pt2hub.server.services.prospects import Submission, foreseen, written
from pt2hub.server.services.requests import check_overrides, check_real, check_targets, expand
from pt2hub.server.services.sources import check_source, check_uploaded
from pt2hub.server.services.spec_errors import parse_spec
from pt2hub.server.services.waiting import explained
from pt2hub.wire.shapes import VersionView

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.wire.prospects import Prospect

_QUICKLY_READ = 4 << 20
"""Bytes of a program that `check` looks into: less than half a second, and mostly all of it without its weights."""


class PublishService:
    """Submissions of specs, and the versions they make."""

    def __init__(
        self,
        sessions: Sessions,
        queue: BuildQueue,
        storage: Reads,
        *,
        silence: timedelta,
        factories: tuple[str, ...] = DEFAULT_FACTORIES,
    ) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            queue: Takes the builds.
            storage: Holds uploaded blobs.
            silence: Time without a heartbeat after which a worker is lost.
            factories: Modules whose factories a spec may name.
        """
        self._sessions = sessions
        self._queue = queue
        self._storage = storage
        self._silence = silence
        self._factories = factories

    def submit(self, document: Mapping[str, Any], *, priority: int = 0) -> VersionView:
        """Makes a version of a spec, or finds the one that has the same content and adds missing targets.

        The version takes over the spec's `limits` and `measure`: attempts that begin from then on have them.
        What waits or runs already is joined; what waits behind this priority is put further ahead.

        Args:
            document: The spec as JSON values.
            priority: Higher comes first.

        Raises:
            InvalidInput: Fields are wrong; often a subclass, see `spec_errors`.
            UnknownFactory: The factory's module is not on the operator's list.
            NotFound: The spec names a blob that was not uploaded.
            BadCodeArchive: The uploaded code is no archive that is taken.
            UnknownEntry: The uploaded code lacks the entry's module.
            BadProgram: The uploaded program is none that is taken.
            ProgramNewer: A target that is named has an older torch than the program's.
            UsageError: The uploaded program or its weights do not fit the spec, see `sources`.
            NoLiveWorker: `auto` was asked for and no worker lives.
            Conflict: A target has a build already, with other overrides.
        """
        check_priority(priority)
        spec, blobs = self._judged(document)
        files = self._opened(blobs)
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

    def check(self, document: Mapping[str, Any]) -> Prospect:
        """Says what `submit` would do, and refuses what it would refuse; nothing is written.

        Asked at each change of a spec, it does not look into a large program; `submit` does.

        Args:
            document: The spec as JSON values.

        Raises:
            Pt2hubError: As `submit`.
        """
        spec, blobs = self._judged(document)
        files = self._opened(blobs)
        check_tensors(spec, files)
        unread = tuple(
            path for path in ("source.program",) if path in files and files[path].size > _QUICKLY_READ
        )
        if not unread:
            check_uploaded(spec, files)
        with self._sessions.begin() as session:
            _, requests = self._requests(session, spec)
            return foreseen(session, Submission(spec, requests, blobs, unread), self._silence)

    def document(self, model: str, number: int) -> dict[str, Any]:
        """The spec of a version as its author would write it, targets included, to publish it again or another one.

        Raises:
            NotFound: There is no such version.
        """
        with self._sessions.begin() as session:
            version = _version(session, model, number)
            return written(version, BuildStore(session).requests(version.id))

    def version(self, model: str, number: int) -> VersionView:
        """A version and its builds.

        Raises:
            NotFound: There is no such version.
        """
        with self._sessions.begin() as session:
            return self._view(session, _version(session, model, number))

    def spec_schema(self) -> dict[str, Any]:
        """The form of a spec as JSON Schema."""
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Spec.model_json_schema()}

    def _judged(self, document: Mapping[str, Any]) -> tuple[Spec, dict[str, dict[str, Any]]]:
        """A spec that is right as far as its own words go, and the blobs that it names."""
        spec = parse_spec(document)
        check_source(spec.source, self._factories)
        check_targets(spec)
        return spec, self._resolve_blobs(spec)

    def _requests(self, session: Session, spec: Spec) -> tuple[dict[str, dict[str, Any]], list[TargetSpec]]:
        """Packages of the live targets, and the targets that a spec asks for."""
        workers = WorkerStore(session)
        live = workers.live_packages(self._silence)
        usable = sorted(name for name in live if parse_target(name).exists)
        return live, expand(spec.requests(), usable, known=() if usable else workers.known())

    def _resolve_blobs(self, spec: Spec) -> dict[str, dict[str, Any]]:
        """Digest and size of every blob the spec names, by path."""
        named = {
            "weights": spec.weights,
            "source.code": spec.source.code if isinstance(spec.source, CodeSource) else None,
            "source.program": spec.source.program if isinstance(spec.source, ProgramSource) else None,
        } | {f"inputs[{place}].example": item.example for place, item in enumerate(spec.inputs)}
        sizes = {
            path: (digest, self._storage.size(StorageKey.blob(Digest(digest))))
            for path, digest in named.items()
            if digest is not None
        }
        missing = {path: digest for path, (digest, size) in sizes.items() if size is None}
        if missing:
            raise _not_uploaded(missing)
        return {path: {"digest": digest, "size": size} for path, (digest, size) in sizes.items()}

    def _opened(self, blobs: Mapping[str, Mapping[str, Any]]) -> dict[str, StoredSource]:
        """The same blobs, to read from; one that is named twice is one source."""
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
        # From here on one submission of the model at a time: equal ones must meet in one version.
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
        """Puts builds of the version that wait further ahead, rows and jobs."""
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
        """Adds builds to a version that has so many already; those of its first submission count for readiness."""
        for name in sorted(item.target for item in requests):  # in one order: submissions must not deadlock
            WorkerStore(session).add_target(parse_target(name))
        for place, request in enumerate(requests, position):
            build_id = BuildStore(session).add(
                version.id, request, position=place, first_submitted=position == 0, priority=priority
            )
            self._queue.defer(session, build_id, queue=request.target, priority=priority)
            notify(session, build_id)  # a worker whose slots all measure gives one up

    def _view(self, session: Session, version: StoredVersion, *, created: bool = False) -> VersionView:
        views = BuildViewStore(session).views(version.id, silence=self._silence)
        return VersionView(
            model=version.model,
            number=version.number,
            identity=version.identity,
            readiness=readiness(BuildStore(session).first_submitted(version.id)),
            created_at=version.created_at,
            spec=version.spec,
            settings=version.settings,
            pins=version.pins,
            builds=tuple(explained(session, views)),
            weights=version.weights,
            golden=version.golden,
            created=created,
        )


def _refer(session: Session, version: StoredVersion, blobs: dict[str, dict[str, Any]]) -> None:
    """Keeps what the spec names from being collected, from now on."""
    keys = {StorageKey.blob(Digest(blob["digest"])): blob["size"] for blob in blobs.values()}
    try:
        BlobStore(session).refer(keys, f"version:{version.id}", adopt=True)
    except BlobGone as exc:  # seen a moment ago, but nobody has confirmed it, or it is being deleted
        gone = set(exc.context["digests"])
        missing = {path: blob["digest"] for path, blob in blobs.items() if blob["digest"] in gone}
        raise _not_uploaded(missing) from exc


def _not_uploaded(missing: Mapping[str, str]) -> NotFound:
    return NotFound(
        "A blob that the spec names was not uploaded",
        where=next(iter(missing)),
        hint="Upload it first: POST /api/v1/uploads, or PUT /api/v1/blobs/<digest> (pt2hub publish does it with "
        "--weights, --code and --program).",
        details=tuple(Detail(path, "not uploaded", given=digest) for path, digest in missing.items()),
    )


def _version(session: Session, model: str, number: int) -> StoredVersion:
    version = VersionStore(session).by_number(parse_model_name(model), number)
    if version is None:
        raise missing.no_version(session, model, number)
    return version


def _pins(
    spec: Spec,
    requests: list[TargetSpec],
    live: dict[str, dict[str, Any]],
    blobs: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """What the submission resolves once and for all: packages by target, blobs by path, targets in order.

    Where the weights were fetched from stands here and not in the spec: the same weights are the same version.
    """
    names = [request.target for request in requests]
    return {
        "packages": {name: live[name] for name in names if name in live},
        "blobs": blobs,
        "targets": names,
        **({"weights_from": spec.weights_from} if spec.weights_from else {}),
    }
