"""Builds: views and actions for people, claims and reports of workers.

Every change by a worker compares build, attempt and state, so that an overtaken attempt, of a worker that was lost and
came back, changes nothing. The state changes themselves are in `transitions`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.audit import Action
from pt2hub.domain.builds import UNFINISHED, BuildKind, BuildState, Claim, Outcome
from pt2hub.domain.publications import Publication, ReusableCode, ReusableRegion
from pt2hub.errors import BuildActive, BuildOver
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.notifications import notify_progress
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.builds.attempts import AttemptStore
from pt2hub.server.db.stores.builds.build_views import BuildViewStore
from pt2hub.server.db.stores.builds.builds import BuildStore, read_state
from pt2hub.server.db.stores.builds.progress import ProgressStore
from pt2hub.server.db.stores.performance.measuring_jobs import MeasuringJobStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.blobs.documents import named_by
from pt2hub.server.services.builds.code_reuse import CodeReuse
from pt2hub.server.services.builds.measuring_queue import MeasuringJobQueue
from pt2hub.server.services.builds.priorities import check_priority
from pt2hub.server.services.builds.retrained_versions import note_retrained
from pt2hub.server.services.builds.transitions import Transitions, overtaken
from pt2hub.server.services.builds.waits import explain_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import LogLine, StepReport
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.tokens import Actor
    from pt2hub.errors import Pt2hubError
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.db.stores.builds.builds import HeldBuild
    from pt2hub.wire.responses import BuildView

__all__ = ["BuildService", "Publication", "ReusableCode", "ReusableRegion"]

_log = structlog.get_logger(__name__)


class BuildService:
    """Builds, for people and for workers."""

    def __init__(
        self, sessions: Sessions, queue: BuildQueue, storage: BlobReader, *, heartbeat_timeout: timedelta
    ) -> None:
        self._sessions = sessions
        self._queue = queue
        self._reuse = CodeReuse(sessions, storage)
        self._heartbeat_timeout = heartbeat_timeout

    # -- for people ---------------------------------------------------------------------------------------

    def view(self, build_id: str) -> BuildView:
        """Return a build with the steps of its latest attempt, all its attempts and its position in the queue.

        Raises:
            NotFound: The build does not exist.
        """
        with self._sessions.begin() as session:
            return self._view(session, build_id)

    def cancel(self, build_id: str, by: Actor) -> BuildView:
        """Cancel a queued or running build; idempotent.

        Raises:
            NotFound: The build does not exist.
            BuildOver: It has succeeded or failed.
        """
        with self._sessions.begin() as session:
            build = self._lock(session, build_id)
            if build.state in (BuildState.SUCCEEDED, BuildState.FAILED):
                raise _over(build, "cancelled")
            if build.state is not BuildState.CANCELLED:
                Transitions(session, self._queue).cancel(build, by=by.principal)
                _log.info("build cancelled", build=build_id, attempt=build.attempt, by=by.name)
                return self._record(session, build, by, Action.BUILD_CANCEL)
            return self._view(session, build_id)

    def retry(self, build_id: str, by: Actor, priority: int | None = None) -> BuildView:
        """Queue a failed or cancelled build again, with its failure count reset.

        Args:
            priority: Its new priority; unchanged where omitted.

        Raises:
            NotFound: The build does not exist.
            InvalidInput: The priority is out of range.
            BuildActive: It is queued or running.
            BuildOver: It has succeeded.
        """
        if priority is not None:
            check_priority(priority)
        with self._sessions.begin() as session:
            build = self._lock(session, build_id)
            if build.state in UNFINISHED:
                raise _active(build)
            if build.state is BuildState.SUCCEEDED:
                raise _over(build, "retried")
            transitions = Transitions(session, self._queue)
            transitions.requeue(build, failures=0, priority=priority, by=by.principal)
            _log.info("build retried", build=build_id, by=by.name)
            return self._record(session, build, by, Action.BUILD_RETRY)

    def requeue(self, build_id: str, by: Actor) -> BuildView:
        """Take a running build from its worker and queue it again; the attempt does not count as failed.

        Raises:
            NotFound: The build does not exist.
            BuildActive: It is queued.
            BuildOver: It has ended.
        """
        with self._sessions.begin() as session:
            build = self._lock(session, build_id)
            if build.state is BuildState.QUEUED:
                raise _active(build)
            if build.state is not BuildState.RUNNING:
                raise _over(build, "queued again")
            Transitions(session, self._queue).hand_back(build, by=by.principal)
            _log.info("build queued again", build=build_id, attempt=build.attempt, by=by.name)
            return self._record(session, build, by, Action.BUILD_REQUEUE)

    # -- for workers --------------------------------------------------------------------------------------

    def claim(self, build_id: str, worker_id: str) -> Claim | None:
        """Take a queued build for a worker, as a new attempt.

        Returns:
            The claim; None where the build is not queued (a job may be delivered twice, or too late).
        """
        with self._sessions.begin() as session:
            claim = BuildStore(session).claim(build_id, worker_id)
            if claim is not None:
                AttemptStore(session).begin(build_id, claim.attempt, worker_id)
                notify_progress(session, build_id)
            return claim

    def read_state(self, build_id: str) -> tuple[BuildState, int]:
        """Return a build's state and the number of its latest attempt; cheap enough to call at each notification.

        Raises:
            NotFound: The build does not exist.
        """
        found = read_state(self._sessions.reader, build_id)
        if found is None:
            with self._sessions.begin() as session:
                raise not_found.no_build(session, build_id)
        return found

    def report(self, claim: Claim, steps: Sequence[StepReport], lines: Sequence[LogLine]) -> None:
        """Record an attempt's steps and log lines, also those that arrive after its build has ended.

        Idempotent: a worker that lost the response reports again.

        Args:
            steps: Steps in the order in which they changed.

        Raises:
            StaleAttempt: The attempt was overtaken and may stop.
        """
        with self._sessions.begin() as session:
            if not AttemptStore(session).takes_reports(claim.build, claim.attempt):
                raise overtaken(claim)
            progress = ProgressStore(session)
            progress.put_steps(claim.build, claim.attempt, steps)
            progress.add_lines(claim.build, claim.attempt, lines)
            notify_progress(session, claim.build)

    def find_code(self, program_key: Digest, *, model: str) -> ReusableCode | None:
        """Return compiled code with this program key from the same team's artifacts, if its bytes still exist.

        Args:
            model: The model to be built, `team/name`.
        """
        return self._reuse.find_code(program_key, model=model)

    def find_regions(self, keys: Collection[Digest], *, model: str) -> dict[Digest, ReusableRegion]:
        """Return compiled code of parts with these program keys, under the same conditions as `find_code`.

        Args:
            model: The model to be built, `team/name`.

        Returns:
            Code by program key; keys without any are missing.
        """
        return self._reuse.find_regions(keys, model=model)

    def record_weights(self, claim: Claim, digest: Digest) -> Digest:
        """Record a blob as the version's weights, unless one is recorded already.

        Returns:
            The version's weights: this blob, or that of the build that came first.

        Raises:
            StaleAttempt: The attempt was overtaken.
            BlobGone: The blob is not stored.
        """
        return self._record_blobs(
            claim, (digest,), lambda store: store.record_weights(claim.version_id, digest)
        )

    def record_golden(self, claim: Claim, digest: Digest, parts: Sequence[Digest] = ()) -> Digest:
        """Record a blob as the version's golden values, unless one is recorded already.

        Returns:
            The version's golden blob: this one, or that of the build that came first.

        Raises:
            StaleAttempt: The attempt was overtaken.
            BlobGone: One of the blobs is not stored.
        """
        needed = (digest, *parts)
        return self._record_blobs(claim, needed, lambda store: store.record_golden(claim.version_id, digest))

    def publish(self, claim: Claim, publication: Publication, steps: Sequence[StepReport] = ()) -> None:
        """Publish an attempt's artifact and queue its measuring job, in one transaction.

        Idempotent: a worker that lost the response publishes again.

        Args:
            publication: The result; its blobs and manifests are already stored by `BlobService.store`.
            steps: Steps not reported yet, so that they are complete when the build ends.

        Raises:
            StaleAttempt: The attempt was overtaken; nothing was written.
            BlobGone: A blob is not stored; nothing was written, and another attempt stores it again.
        """
        with self._sessions.begin() as session:
            builds = BuildStore(session)
            build = builds.held(claim)
            if build is None:
                if builds.has_published(claim, publication.manifest.digest):
                    return
                raise overtaken(claim)
            ProgressStore(session).put_steps(claim.build, claim.attempt, steps)
            reused = bool(publication.config.provenance.get("code_reused_from"))
            Transitions(session, self._queue).succeed(build, reused=reused)
            ArtifactStore(session).add(claim.build, claim.attempt, publication)
            session.flush()
            MeasuringJobQueue(session, self._queue).ensure_published(claim, publication.manifest.digest)
            blobs = BlobStore(session)
            needed = named_by(publication.manifest, *publication.referrers)
            blobs.refer(needed, f"artifact:{publication.manifest.digest}")
            blobs.drop(claim.holder)
            if reused:
                note_retrained(session, publication.manifest.digest)

    def fail(self, claim: Claim, error: Pt2hubError) -> None:
        """Fail an attempt and its build with an error.

        Raises:
            StaleAttempt: The attempt was overtaken or has ended; nothing was written.
        """
        with self._held(claim) as (build, transitions):
            transitions.fail(build, error)

    def retry_later(self, claim: Claim, error: Pt2hubError) -> None:
        """End an attempt with a transient failure: its build is queued again, with a growing delay.

        After `MAX_FAILURES` the build fails with this error.

        Raises:
            StaleAttempt: The attempt was overtaken or has ended; nothing was written.
        """
        with self._held(claim) as (build, transitions):
            transitions.retry_later(build, error)

    def hand_back(self, claim: Claim) -> None:
        """Return an unfinished build to the queue, for another worker.

        Raises:
            StaleAttempt: The attempt was overtaken or has ended; nothing was written.
        """
        with self._held(claim) as (build, transitions):
            transitions.hand_back(build)

    def postpone(self, claim: Claim) -> None:
        """Return a measuring job to the queue, behind the builds that wait.

        Raises:
            StaleAttempt: The attempt was overtaken or has ended; nothing was written.
        """
        with self._held(claim) as (build, transitions):
            transitions.hand_back(build, outcome=Outcome.POSTPONED)

    def giving_way(self, jobs: Sequence[str], target: str) -> list[str]:
        """Return which of a worker's measuring jobs should give their slots to queued builds."""
        with self._sessions.begin() as session:
            return MeasuringJobStore(session).giving_way(jobs, target)

    def _record_blobs(
        self, claim: Claim, needed: Sequence[Digest], record: Callable[[VersionStore], Digest]
    ) -> Digest:
        """Record the first of some blobs, and refer the version to all of them."""
        with self._sessions.begin() as session:
            if not BuildStore(session).keep(claim):
                raise overtaken(claim)
            recorded = record(VersionStore(session))
            if recorded == needed[0]:
                keys = {StorageKey.blob(digest) for digest in needed}
                BlobStore(session).refer(dict.fromkeys(keys, 0), f"version:{claim.version_id}")
            return recorded

    @contextlib.contextmanager
    def _held(self, claim: Claim) -> Iterator[tuple[HeldBuild, Transitions]]:
        """Lock the build of a current attempt within a transaction."""
        with self._sessions.begin() as session:
            build = BuildStore(session).held(claim)
            if build is None:
                raise overtaken(claim)
            yield build, Transitions(session, self._queue)

    def _lock(self, session: Session, build_id: str) -> HeldBuild:
        build = BuildStore(session).lock(build_id)
        if build is None:
            raise not_found.no_build(session, build_id)
        return build

    def _record(self, session: Session, build: HeldBuild, by: Actor, action: Action) -> BuildView:
        """Record what a person did to a build; return the build as it is now."""
        view = self._view(session, build.id)
        audit_log.record(
            session,
            by,
            action,
            build.id,
            models=[view.model],
            version=f"{view.model}@{view.number}",
            target=view.target,
            before={"state": build.state, "priority": build.priority},
            after={"state": view.state, "priority": view.priority},
        )
        return view

    def _view(self, session: Session, build_id: str) -> BuildView:
        view = BuildViewStore(session).view(build_id, heartbeat_timeout=self._heartbeat_timeout)
        if view is None:
            raise not_found.no_build(session, build_id)
        return explain_waits(session, [view])[0]


_STATE_TEXTS = {
    BuildState.SUCCEEDED: "has succeeded",
    BuildState.FAILED: "has failed",
    BuildState.CANCELLED: "was cancelled",
}
_RESULT_HINTS = {
    BuildKind.BUILD: "It has an artifact: see pt2hub builds {build}.",
    BuildKind.MEASURE: "Its measurements are kept. pt2hub measure queues another job.",
    BuildKind.REBUILD: "It replaced what was damaged. pt2hub admin heal lists what still is.",
}


def _over(build: HeldBuild, done: str) -> BuildOver:
    return BuildOver(
        f"Build {build.id} {_STATE_TEXTS[build.state]} and cannot be {done}",
        where=build.id,
        hint=f"Queue it again with pt2hub retry {build.id}."
        if build.state in (BuildState.FAILED, BuildState.CANCELLED)
        else _RESULT_HINTS[build.kind].format(build=build.id),
        context={"state": build.state},
    )


def _active(build: HeldBuild) -> BuildActive:
    state = "queued" if build.state is BuildState.QUEUED else "running"
    return BuildActive(
        f"Build {build.id} is already {state}",
        where=build.id,
        hint=f"Follow it with pt2hub logs -f {build.id}, or end it with pt2hub cancel {build.id} first.",
        context={"state": build.state},
    )
