"""Publishing: from a spec to a version with builds and their jobs, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import readiness
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import parse_model_name
from pt2hub.domain.specs import DEFAULT_FACTORIES, FactorySource, Spec, TargetSpec, check_factory
from pt2hub.domain.targets import parse_target
from pt2hub.errors import BlobGone, Conflict, Detail, InvalidInput, NoLiveWorker, NotFound, UnknownTarget
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.notifications import notify_progress
from pt2hub.server.db.stores.blobs import BlobStore
from pt2hub.server.db.stores.build_views import BuildViewStore
from pt2hub.server.db.stores.builds import BuildStore, build_request
from pt2hub.server.db.stores.versions import StoredVersion, VersionStore
from pt2hub.server.db.stores.workers import WorkerStore
from pt2hub.server.services import missing
from pt2hub.server.services.examples import check_tensors
from pt2hub.server.services.priorities import check_priority
from pt2hub.server.services.spec_errors import parse_spec
from pt2hub.server.services.waiting import explained
from pt2hub.wire.shapes import VersionView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue

AUTO = "auto"
_TARGETS_HINT = "GET /api/v1/targets lists the targets that workers offer."


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

        What waits or runs already is joined; what waits behind this priority is put further ahead.

        Args:
            document: The spec as JSON values.
            priority: Higher comes first.

        Raises:
            InvalidInput: Fields are wrong; often a subclass, see `spec_errors`.
            UnknownFactory: The factory's module is not on the operator's list.
            NotFound: The spec names a blob that was not uploaded.
            NoLiveWorker: `auto` was asked for and no worker lives.
            Conflict: A target has a build already, with other overrides.
        """
        check_priority(priority)
        spec = parse_spec(document)
        if isinstance(spec.source, FactorySource):
            check_factory(spec.source, self._factories)
        _check_targets(spec)
        blobs = self._resolve_blobs(spec)
        check_tensors(spec, blobs, self._storage)
        with self._sessions.begin() as session:
            live = WorkerStore(session).live_packages(self._silence)
            usable = sorted(name for name in live if parse_target(name).exists)
            requests = _expand(spec.requests(), usable, known=() if usable else WorkerStore(session).known())
            version, created = self._ensure_version(session, spec, _pins(requests, live, blobs))
            _refer(session, version, blobs)
            present = BuildStore(session).requests(version.id)
            _check_overrides(requests, present, _named(spec))
            _check_real({*present, *(request.target for request in requests)})
            self._raise(session, version, requests, priority)
            missing = [request for request in requests if request.target not in present]
            self._add_builds(session, version, missing, position=len(present), priority=priority)
            return self._view(session, version, created=created)

    def version(self, model: str, number: int) -> VersionView:
        """A version and its builds.

        Raises:
            NotFound: There is no such version.
        """
        with self._sessions.begin() as session:
            version = VersionStore(session).by_number(parse_model_name(model), number)
            if version is None:
                raise missing.no_version(session, model, number)
            return self._view(session, version)

    def spec_schema(self) -> dict[str, Any]:
        """The form of a spec as JSON Schema."""
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Spec.model_json_schema()}

    def _resolve_blobs(self, spec: Spec) -> dict[str, dict[str, Any]]:
        """Digest and size of every blob the spec names, by path."""
        named = {"weights": spec.weights} | {
            f"inputs[{place}].example": item.example for place, item in enumerate(spec.inputs)
        }
        sizes = {
            path: (digest, self._storage.size(StorageKey.blob(Digest(digest))))
            for path, digest in named.items()
            if digest is not None
        }
        missing = {path: digest for path, (digest, size) in sizes.items() if size is None}
        if missing:
            raise _not_uploaded(missing)
        return {path: {"digest": digest, "size": size} for path, (digest, size) in sizes.items()}

    def _ensure_version(
        self, session: Session, spec: Spec, pins: dict[str, Any]
    ) -> tuple[StoredVersion, bool]:
        versions = VersionStore(session)
        # From here on one submission of the model at a time: equal ones must meet in one version.
        model_id = versions.lock_model(spec.model)
        if found := versions.by_identity(model_id, spec.identity()):
            return found, False
        version = versions.add(
            model_id, identity=spec.identity(), spec=spec.canonical(), pins=pins, weights=spec.weights
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

    def _view(self, session: Session, version: StoredVersion, *, created: bool = False) -> VersionView:
        views = BuildViewStore(session).views(version.id, silence=self._silence)
        return VersionView(
            model=version.model,
            number=version.number,
            identity=version.identity,
            readiness=readiness(BuildStore(session).first_submitted(version.id)),
            created_at=version.created_at,
            spec=version.spec,
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
        hint="Upload it first: POST /api/v1/uploads, or PUT /api/v1/blobs/<digest> (pt2hub publish --weights does it).",
        details=tuple(Detail(path, "not uploaded", given=digest) for path, digest in missing.items()),
    )


def _check_targets(spec: Spec) -> None:
    """Refuses names of no target, and targets that are asked for twice."""
    seen: set[str] = set()
    unknown, repeated = [], []
    for place, request in enumerate(spec.requests()):
        path = f"targets[{place}]"
        if request.target in seen:
            repeated.append(Detail(path, "the target is named before", given=request.target))
        elif request.target != AUTO:
            unknown += _unknown(path, request.target)
        seen.add(request.target)
    if unknown:
        raise UnknownTarget(where=unknown[0].path, hint=_TARGETS_HINT, details=tuple(unknown))
    if repeated:
        raise InvalidInput(
            "A target is asked for twice",
            where=repeated[0].path,
            hint="A version has one build per target: keep one of the entries.",
            details=tuple(repeated),
        )


def _unknown(path: str, name: str) -> list[Detail]:
    try:
        parse_target(name)
    except UnknownTarget as exc:
        return [Detail(path, exc.message, given=name[:80], allowed=exc.hint)]
    return []


def _check_real(targets: set[str]) -> None:
    """Refuses the no-op toolchain's target beside others: what it makes up would become the version's weights."""
    unreal = sorted(name for name in targets if not parse_target(name).exists)
    if unreal and len(targets) > len(unreal):
        raise InvalidInput(
            f"{unreal[0]} is the no-op toolchain's, and cannot stand beside real targets",
            where="targets",
            hint="Publish under another model's name to try the build plane.",
        )


def _expand(requests: list[TargetSpec], live: list[str], *, known: Sequence[str]) -> list[TargetSpec]:
    """The targets asked for by name; `auto` stands for the live ones that are not named beside it."""
    named = {request.target for request in requests}
    expanded = []
    for request in requests:
        if request.target != AUTO:
            expanded.append(request)
            continue
        if not live:
            raise NoLiveWorker(
                "No worker lives that auto could stand for",
                where="targets",
                hint="Start a worker (pt2hub up starts one), or name a target: its build waits for a worker."
                + (f" Workers offered {', '.join(known)} before." if known else ""),
            )
        expanded += [request.model_copy(update={"target": name}) for name in live if name not in named]
    return expanded


def _named(spec: Spec) -> frozenset[str]:
    return frozenset(request.target for request in spec.requests()) - {AUTO}


def _pins(
    requests: list[TargetSpec], live: dict[str, dict[str, Any]], blobs: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """What the submission resolves once and for all: packages by target, blobs by path, targets in order."""
    names = [request.target for request in requests]
    return {
        "packages": {name: live[name] for name in names if name in live},
        "blobs": blobs,
        "targets": names,
    }


def _check_overrides(
    requests: list[TargetSpec], present: dict[str, dict[str, Any]], named: frozenset[str]
) -> None:
    """Refuses other overrides for a target that has its build: they would silently be ignored."""
    for request in requests:
        given = build_request(request)
        if request.target in named and present.get(request.target, given) != given:
            raise Conflict(
                f"The version has a build for {request.target} with other overrides",
                where="targets",
                hint="Leave the target out, repeat its overrides, or change the spec to make a new version.",
                context={"present": present[request.target], "given": given},
            )
