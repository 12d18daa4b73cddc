"""Reindexing: rebuilds the database from the manifests and the journal in storage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import (
    ARTIFACT_TYPE,
    AUTOTUNE_TYPE,
    BUILD,
    CREATED,
    DOCUMENTATION_TYPE,
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
from pt2hub.errors import BadResponse, BlobDamaged, Conflict, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.artifacts.regions import RegionStore
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.blobs.damage import DamageStore
from pt2hub.server.db.stores.builds.attempts import AttemptStore
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.builds.progress import ProgressStore
from pt2hub.server.db.stores.operations.journal_position import JournalPositionStore
from pt2hub.server.db.stores.operations.reindex_state import ReindexState
from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.db.stores.performance.measurements import PerformanceStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.db.stores.retention.policies import RetentionStore
from pt2hub.server.db.stores.retention.tombstones import TombstoneStore
from pt2hub.server.db.stores.values import moment
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.blobs.blob_reindex import BlobIndex
from pt2hub.server.services.blobs.damage import DamageService, describe_problem
from pt2hub.server.services.blobs.documents import named_by, read_config, read_json, read_manifest
from pt2hub.server.services.blobs.tombstone_documents import TombstoneDocuments
from pt2hub.server.services.builds.retrained_versions import note_retrained
from pt2hub.server.services.operations.documentation_reindex import DocumentationIndex
from pt2hub.server.services.operations.journal import JournalService
from pt2hub.server.services.operations.journal_files import JournalFiles
from pt2hub.server.services.operations.journal_reindex import AFTER_MANIFESTS, BEFORE_MANIFESTS, JournalIndex
from pt2hub.server.services.operations.tombstone_application import TombstoneApplication

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.performance.measurements import MeasurementRun
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue

_UNREADABLE = (BadResponse, BlobDamaged, NotFound, TooLarge)
_MAX_NAMED_LOSSES = 100
"""Lost documents that the audit entry names; it also has their number."""


class ReindexService:
    """Rebuilds rows from manifests and the journal."""

    def __init__(self, sessions: Sessions, storage: Storage, queue: BuildQueue) -> None:
        self._sessions = sessions
        self._storage = storage
        self._journal = JournalService(sessions, storage)
        self._blobs = BlobIndex(sessions, storage)
        self._damage = DamageService(sessions, storage)
        self._tombstones = TombstoneDocuments(sessions, storage)
        self._deletions = TombstoneApplication(sessions, queue)
        self._documentation = DocumentationIndex(sessions, self._damage)

    def apply_tombstones(self, *, by: Actor = SERVER) -> tuple[list[str], dict[str, str]]:
        """Delete again what was deleted according to the storage, as after the restore of an older backup.

        Returns:
            What was deleted, and the digests of unreadable tombstones, with reasons.

        Raises:
            StorageUnavailable: The storage does not answer.
        """
        unreadable = self._tombstones.restore()
        return self._deletions.apply(by), unreadable

    def reindex(self, *, by: Actor = SERVER, accept_losses: bool = False) -> dict[str, Any]:
        """Add to the database what only storage has; existing rows stay, but for what was deleted.

        This includes the rows and references of blobs, also for versions and logs.

        The journal says what no manifest does. Its versions and builds come first, with their own times and settings,
        and the manifests complete them. Measuring jobs are not restored; their measurements are. An attempt that was overtaken between upload and publication left an unreferenced manifest:
        if a build has several manifests, only that of the latest attempt can have been published.

        When versions were pulled is lost, so those that it adds count as pulled today: else the next run of a retention
        policy would delete what was pulled yesterday. After the restore of a backup, all versions do.

        Damage that it meets is recorded: documents with another digest, and files that are missing or have another
        length than their manifest says. Missing files get rows, so that everyone knows who needs them. Other files are
        not read; a scrub does that.

        Nothing is collected from its beginning to its end, and from then on while something was unreadable: what that
        names is intact and lacks references.

        Args:
            accept_losses: Let the collector take what only unreadable documents name, and write the journal anew where files
                of it are damaged or missing.

        Returns:
            `manifests` seen, `artifacts` among them, `added` to the database, rows changed by the `journal`, what was
            `unreadable` or contradicts the database, with reasons, blobs and manifests that are `damaged`, with
            reasons, and what was `deleted` again because storage has its tombstone.
        """
        # Committed first: rows without references must never be collected.
        with self._sessions.begin() as session:
            known = RetentionStore(session).newest_version() if ReindexState(session).has_ended() else 0
            ReindexState(session).begin()
        self._blobs.restore_rows()
        self._damage.recheck()  # files that an operator put back
        deleted, unreadable = self.apply_tombstones(by=by)
        journal_damage: dict[str, str] = {}
        journal = self._read_journal(journal_damage)
        unreadable |= journal_damage
        journal.add(BEFORE_MANIFESTS)
        artifacts, referrers, documentation, seen = self._scan(unreadable)
        artifacts = self._without_deleted(artifacts)
        read = self._without_buried(
            [found for manifest in artifacts if (found := self._read(manifest, unreadable))]
        )
        added: list[Digest] = []
        for manifest, config in sorted(read, key=lambda pair: _attempt(pair[1]), reverse=True):
            try:
                if self._restore(manifest, config, referrers.get(manifest.digest, ()), by, unreadable):
                    added.append(manifest.digest)
            except (*_UNREADABLE, Conflict) as exc:
                unreadable[manifest.digest] = str(exc)
            self._check_files(manifest, referrers.get(manifest.digest, ()))
        for manifest, _ in read:  # last: a run may have measured other artifacts alongside its own
            self._restore_runs(manifest, referrers.get(manifest.digest, ()), unreadable)
        journal.add(AFTER_MANIFESTS)
        self._documentation.restore(documentation, unreadable, is_journal_whole=not journal_damage)
        with self._sessions.begin() as session:
            for digest in added:
                note_retrained(session, digest)
        journal.remove()
        journal.finish(by)
        with self._sessions.begin() as session:
            RetentionStore(session).count_as_pulled(after=known)
        self._blobs.refer_versions(unreadable)
        self._blobs.refer_logs()
        for item in self._damage.list_lost():
            unreadable.setdefault(item.digest, describe_problem(item))
        if accept_losses and (lost := journal_damage | self._journal.find_lost_end()):
            self._journal.replace_lost(lost)
        self._end(unreadable, by, accept_losses=accept_losses)
        damaged = {item.digest: describe_problem(item) for item in self._damage.list_damaged()}
        return {
            "manifests": seen,
            "artifacts": len(artifacts),
            "added": len(added),
            "journal": journal.added + journal.removed,
            "unreadable": unreadable | journal.conflicts,
            "damaged": damaged,
            "deleted": deleted,
        }

    def _read_journal(self, damage: dict[str, str]) -> JournalIndex:
        """Return the journal, from now on with what another database or a lost one wrote.

        What was changed since waits for its place behind that: it is written first, or what was removed would come back.
        """
        files = JournalFiles(self._storage)
        last = files.last()
        with self._sessions.begin() as session:
            is_due = ReindexState(session).is_due()
            JournalPositionStore(session).accept(last)
        if is_due:
            self._journal.write(by_reindex=True)
        return JournalIndex(self._sessions, files.read(damage))

    def _end(self, unreadable: Mapping[str, str], by: Actor, *, accept_losses: bool) -> None:
        with self._sessions.begin() as session:
            ReindexState(session).end(0 if accept_losses else len(unreadable))
            if accept_losses and unreadable:
                audit_log.record(
                    session,
                    by,
                    Action.REINDEX_ACCEPT_LOSSES,
                    "storage",
                    documents=len(unreadable),
                    lost=sorted(unreadable)[:_MAX_NAMED_LOSSES],
                )

    def _check_files(self, manifest: Manifest, referrers: Iterable[Manifest]) -> None:
        """Record which files of an artifact are missing; those with another length are checked."""
        needed = named_by(manifest, *referrers)
        with self._sessions.begin() as session:
            if ArtifactStore(session).ref(manifest.digest) is None:
                return  # of an attempt that was overtaken: the collector may have had some of its files
            suspects = DamageStore(session).other_sizes(needed)
        for key in suspects:
            self._damage.check_key(key, by="admin")
        self._damage.record_missing(needed, f"artifact:{manifest.digest}")

    def _without_deleted(self, artifacts: list[Manifest]) -> list[Manifest]:
        """Leave out artifacts that were deleted and whose objects are not collected yet."""
        with self._sessions.begin() as session:
            deleted = TombstoneStore(session).deleted_among([manifest.digest for manifest in artifacts])
        return [manifest for manifest in artifacts if manifest.digest not in deleted]

    def _without_buried(
        self, read: list[tuple[Manifest, ArtifactConfig]]
    ) -> list[tuple[Manifest, ArtifactConfig]]:
        """Leave out artifacts of deleted versions and builds; tombstones do not name those of overtaken attempts."""
        versions = [_version(config) for _, config in read]
        builds = [_build(manifest, config) for manifest, config in read]
        with self._sessions.begin() as session:
            store = TombstoneStore(session)
            buried = store.named_among("version", versions), store.named_among("build", builds)
        return [
            pair
            for pair, version, build in zip(read, versions, builds, strict=True)
            if version not in buried[0] and build not in buried[1]
        ]

    def _read(self, manifest: Manifest, unreadable: dict[str, str]) -> tuple[Manifest, ArtifactConfig] | None:
        try:
            return manifest, read_config(self._storage, manifest)
        except _UNREADABLE as exc:
            if isinstance(exc, NotFound):
                self._damage.record_missing({StorageKey.blob(manifest.config.digest): manifest.config.size})
            unreadable[manifest.digest] = str(self._damage.explain(exc))
            return None

    def _scan(
        self, unreadable: dict[str, str]
    ) -> tuple[list[Manifest], dict[Digest, list[Manifest]], list[Manifest], int]:
        """Read every manifest; return artifacts, their referrers by digest, documentation of versions, and the count."""
        artifacts: list[Manifest] = []
        documentation: list[Manifest] = []
        referrers: dict[Digest, list[Manifest]] = {}
        seen = 0
        for key in self._storage.keys("manifests"):
            seen += 1
            try:
                manifest = read_manifest(self._storage, key.digest)
            except _UNREADABLE as exc:
                unreadable[key.digest] = str(self._damage.explain(exc))
                continue
            if manifest.subject:
                referrers.setdefault(manifest.subject.digest, []).append(manifest)
            elif manifest.artifactType == ARTIFACT_TYPE:
                artifacts.append(manifest)
            elif manifest.artifactType == DOCUMENTATION_TYPE:
                documentation.append(manifest)
        return artifacts, referrers, documentation, seen

    def _restore(
        self,
        manifest: Manifest,
        config: ArtifactConfig,
        referrers: Iterable[Manifest],
        by: Actor,
        unreadable: dict[str, str],
    ) -> bool:
        ordered = tuple(sorted(referrers, key=lambda item: item.digest))
        publication = Publication(
            manifest=manifest,
            config=config,
            referrers=ordered,
            autotune=self._table(ordered, AUTOTUNE_TYPE, unreadable),
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
                    version=_version(config),
                    target=config.target.name,
                )
            artifacts = ArtifactStore(session)
            if added or artifacts.ref(manifest.digest):
                artifacts.refer(manifest.digest, ordered)
                artifacts.complete_choices(manifest.digest, publication.autotune)
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

    def _table(
        self, referrers: Iterable[Manifest], artifact_type: str, unreadable: dict[str, str]
    ) -> list[dict[str, Any]]:
        """Return the rows of tables; an unreadable one keeps its artifact away no more than a run does."""
        rows: list[dict[str, Any]] = []
        for manifest in referrers:
            if manifest.artifactType == artifact_type:
                for layer in manifest.layers:
                    try:
                        rows += read_json(self._storage, StorageKey.blob(layer.digest))
                    except _UNREADABLE as exc:
                        unreadable[manifest.digest] = str(self._damage.explain(exc))
        return rows


def _build(manifest: Manifest, config: ArtifactConfig) -> str:
    return manifest.annotations.get(BUILD) or config.provenance.get("build") or manifest.digest[-16:]


def _version(config: ArtifactConfig) -> str:
    return f"{config.version.model}@{config.version.number}"


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
