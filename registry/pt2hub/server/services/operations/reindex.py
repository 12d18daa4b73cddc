"""Reindexing: rebuilds the database from the manifests in storage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import (
    ARTIFACT_TYPE,
    AUTOTUNE_TYPE,
    BUILD,
    CREATED,
    LINES,
    LOG_TYPE,
    MEASUREMENT_RUN_TYPE,
    ArtifactConfig,
    Manifest,
)
from pt2hub.domain.audit import Action
from pt2hub.domain.builds import StepReport
from pt2hub.domain.codec import encode
from pt2hub.domain.performance.measurements import read_run
from pt2hub.domain.principals import read_principal
from pt2hub.domain.publications import Publication
from pt2hub.domain.tokens import SERVER
from pt2hub.errors import BadResponse, Conflict, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.artifacts.regions import RegionStore
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.builds.attempts import AttemptStore
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.builds.progress import ProgressStore
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.db.stores.performance.measurements import PerformanceStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.db.stores.values import moment
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.blobs.blob_reindex import BlobIndex
from pt2hub.server.services.blobs.documents import named_by, read_config, read_json, read_manifest
from pt2hub.server.services.builds.retrained_versions import note_retrained

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.performance.measurements import MeasurementRun
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions

_UNREADABLE = (BadResponse, NotFound, TooLarge)


class ReindexService:
    """Rebuilds rows from manifests."""

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        self._sessions = sessions
        self._storage = storage
        self._blobs = BlobIndex(sessions, storage)

    def reindex(self, *, by: Actor = SERVER) -> dict[str, Any]:
        """Add to the database what only storage has; existing rows stay.

        This includes the rows and references of blobs, also for versions and logs.

        Versions that never had an artifact are in no manifest and are not restored, nor are measuring jobs; their
        measurements are. An attempt that was overtaken between upload and publication left an unreferenced manifest:
        if a build has several manifests, only that of the latest attempt can have been published.

        Returns:
            `manifests` seen, `artifacts` among them, `added` to the database, and `unreadable` ones with reasons.
        """
        unreadable: dict[str, str] = {}
        self._blobs.restore_rows()
        artifacts, referrers, seen = self._scan(unreadable)
        read = [found for manifest in artifacts if (found := self._read(manifest, unreadable))]
        added: list[Digest] = []
        for manifest, config in sorted(read, key=lambda pair: _attempt(pair[1]), reverse=True):
            try:
                if self._restore(manifest, config, referrers.get(manifest.digest, ()), by):
                    added.append(manifest.digest)
            except (*_UNREADABLE, Conflict) as exc:
                unreadable[manifest.digest] = str(exc)
        for manifest, _ in read:  # last: a run may have measured other artifacts alongside its own
            self._restore_runs(manifest, referrers.get(manifest.digest, ()), unreadable)
        with self._sessions.begin() as session:
            for digest in added:
                note_retrained(session, digest)
        self._blobs.refer_versions()
        self._blobs.refer_logs()
        return {"manifests": seen, "artifacts": len(artifacts), "added": len(added), "unreadable": unreadable}

    def _read(self, manifest: Manifest, unreadable: dict[str, str]) -> tuple[Manifest, ArtifactConfig] | None:
        try:
            return manifest, read_config(self._storage, manifest)
        except _UNREADABLE as exc:
            unreadable[manifest.digest] = str(exc)
            return None

    def _scan(self, unreadable: dict[str, str]) -> tuple[list[Manifest], dict[Digest, list[Manifest]], int]:
        """Read every manifest; return the artifacts, their referrers by digest, and the count."""
        artifacts: list[Manifest] = []
        referrers: dict[Digest, list[Manifest]] = {}
        seen = 0
        for key in self._storage.keys("manifests"):
            seen += 1
            try:
                manifest = read_manifest(self._storage, key.digest)
            except _UNREADABLE as exc:
                unreadable[key.digest] = str(exc)
                continue
            if manifest.subject:
                referrers.setdefault(manifest.subject.digest, []).append(manifest)
            elif manifest.artifactType == ARTIFACT_TYPE:
                artifacts.append(manifest)
        return artifacts, referrers, seen

    def _restore(
        self, manifest: Manifest, config: ArtifactConfig, referrers: Iterable[Manifest], by: Actor
    ) -> bool:
        ordered = tuple(sorted(referrers, key=lambda item: item.digest))
        publication = Publication(
            manifest=manifest,
            config=config,
            referrers=ordered,
            autotune=self._table(ordered, AUTOTUNE_TYPE),
        )
        with self._sessions.begin() as session:
            added = _restore_rows(session, publication)
            if added:
                version = config.version
                audit_log.record(
                    session,
                    by,
                    Action.ARTIFACT_RESTORE,
                    manifest.digest,
                    models=[version.model],
                    version=f"{version.model}@{version.number}",
                    target=config.target.name,
                )
            artifacts = ArtifactStore(session)
            if added or artifacts.ref(manifest.digest):
                artifacts.refer(manifest.digest, ordered)
                RegionStore(session).add(manifest.digest, config.regions)
                needed = named_by(manifest, *ordered)
                BlobStore(session).refer_stored(needed, f"artifact:{manifest.digest}")
            return added

    def _restore_runs(
        self,
        manifest: Manifest,
        referrers: Iterable[Manifest],
        unreadable: dict[str, str],
    ) -> None:
        """Add the measurements of an artifact that have no rows; unreadable runs are skipped."""
        runs = []
        for referrer in referrers:
            try:
                runs += self._runs(referrer)
            except _UNREADABLE as exc:
                unreadable[referrer.digest] = str(exc)
        with self._sessions.begin() as session:
            if ArtifactStore(session).ref(manifest.digest) is None:
                return
            store = PerformanceStore(session)
            known = store.runs(manifest.digest)
            for run in sorted(runs, key=lambda item: (item.measured_at, item.id)):
                if run.id not in known:
                    store.add_run(manifest.digest, run)

    def _runs(self, referrer: Manifest) -> list[MeasurementRun]:
        """Return the runs in a referrer of an artifact; none where it is of another type."""
        if referrer.artifactType != MEASUREMENT_RUN_TYPE:
            return []
        keys = [StorageKey.blob(layer.digest) for layer in referrer.layers]
        return [read_run(read_json(self._storage, key), where=key.digest) for key in keys]

    def _table(self, referrers: Iterable[Manifest], artifact_type: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for manifest in referrers:
            if manifest.artifactType == artifact_type:
                for layer in manifest.layers:
                    rows += read_json(self._storage, StorageKey.blob(layer.digest))
        return rows


def _build(manifest: Manifest, config: ArtifactConfig) -> str:
    return manifest.annotations.get(BUILD) or config.provenance.get("build") or manifest.digest[-16:]


def _restore_rows(session: Session, publication: Publication) -> bool:
    config, manifest = publication.config, publication.manifest
    publisher = read_principal(config.provenance.get("published_by"))
    version = VersionStore(session).restore(config.version, by=publisher)
    WorkerStore(session).add_target(config.target)
    if ArtifactStore(session).taken(version.id, config.target.name):
        return False
    attempt = _attempt(config)
    finished = moment(manifest.annotations.get(CREATED))
    build_id = BuildStore(session).restore(
        {
            "id": _build(manifest, config),
            "version_id": version.id,
            "target": config.target.name,
            "request": config.request,
            "requested_by": encode(read_principal(config.provenance.get("requested_by"))),
            "attempt": attempt,
            **_position(config),
            "started_at": None,
            "finished_at": finished,
        }
    )
    ArtifactStore(session).add(build_id, attempt, publication)
    _restore_attempt(session, build_id, publication)
    return True


def _restore_attempt(session: Session, build_id: str, publication: Publication) -> None:
    """Restore the attempt that made the artifact, its steps end to end before the artifact's creation."""
    config = publication.config
    ended = moment(publication.manifest.annotations.get(CREATED)) or datetime.now(UTC)
    began = ended - timedelta(seconds=sum(step.seconds for step in config.steps))
    AttemptStore(session).restore(
        {
            "build_id": build_id,
            "attempt": _attempt(config),
            "worker_id": "",
            "started_at": began,
            "ended_at": ended,
            "reused": bool(config.provenance.get("code_reused_from")),
            **_log(publication.referrers),
        }
    )
    steps, started = [], began.timestamp()
    for step in config.steps:
        steps.append(StepReport(step.name, "done", started, step.seconds))
        started += step.seconds
    ProgressStore(session).put_steps(build_id, _attempt(config), steps)


def _log(referrers: Iterable[Manifest]) -> dict[str, Any]:
    """Return the columns of the attempt's archived log; empty where it was never archived."""
    for manifest in referrers:
        layer = manifest.layer(LOG_TYPE)
        lines = manifest.annotations.get(LINES, "")
        if layer and lines.isdecimal():
            return {"log": layer.digest, "log_bytes": layer.size, "log_lines": int(lines)}
    return {}


def _attempt(config: ArtifactConfig) -> int:
    return int(config.provenance.get("attempt", 1))


def _position(config: ArtifactConfig) -> dict[str, Any]:
    """Return the build's position in its version: the pins list the first submitted targets, in order."""
    first = list(config.version.pins.get("targets", ()))
    name = config.target.name
    listed = name in first
    return {"first_submitted": listed or not first, "position": first.index(name) if listed else len(first)}
