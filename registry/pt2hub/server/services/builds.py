"""Builds, as people follow and steer them and as workers do them.

Every change that a worker asks for compares build, attempt and state, so that an attempt that was overtaken, by
a worker that came back from the dead, changes nothing. What the changes consist of is in `transitions`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.artifacts import CODE_TYPE
from pt2hub.domain.builds import BuildKind, BuildState, Claim, Outcome
from pt2hub.domain.names import team_of
from pt2hub.domain.publications import Publication, ReusableCode
from pt2hub.errors import BadResponse, BuildActive, BuildOver, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.notifications import notify_progress
from pt2hub.server.db.stores.artifacts import ArtifactStore
from pt2hub.server.db.stores.attempts import AttemptStore
from pt2hub.server.db.stores.blobs import BlobStore
from pt2hub.server.db.stores.build_views import BuildViewStore
from pt2hub.server.db.stores.builds import BuildStore, standing
from pt2hub.server.db.stores.measuring import MeasuringStore
from pt2hub.server.db.stores.progress import ProgressStore
from pt2hub.server.db.stores.versions import VersionStore
from pt2hub.server.services.documents import named_by, read_config, read_manifest
from pt2hub.server.services.measuring_jobs import MeasuringJobQueue
from pt2hub.server.services.priorities import check_priority
from pt2hub.server.services.transitions import Transitions, overtaken
from pt2hub.server.services.waiting import explained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import LogLine, StepReport
    from pt2hub.domain.digests import Digest
    from pt2hub.errors import Pt2hubError
    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.db.stores.builds import HeldBuild
    from pt2hub.wire.shapes import BuildView

__all__ = ["BuildService", "Publication", "ReusableCode"]

_log = structlog.get_logger(__name__)


class BuildService:
    """Builds."""

    def __init__(self, sessions: Sessions, queue: BuildQueue, storage: Reads, *, silence: timedelta) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            queue: Takes builds that wait again.
            storage: Holds manifests and configs.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._queue = queue
        self._storage = storage
        self._silence = silence

    # -- for people ---------------------------------------------------------------------------------------

    def view(self, build_id: str) -> BuildView:
        """A build with the steps of its latest attempt, all its attempts and its place in the queue.

        Raises:
            NotFound: There is no such build.
        """
        with self._sessions.begin() as session:
            return self._view(session, build_id)

    def cancel(self, build_id: str, by: str) -> BuildView:
        """Ends a build without a result, whether it waits or runs; one that is cancelled already stays so.

        Args:
            build_id: The build.
            by: Who wants it.

        Raises:
            NotFound: There is no such build.
            BuildOver: It succeeded or failed before.
        """
        with self._sessions.begin() as session:
            build = self._lock(session, build_id)
            if build.state in (BuildState.SUCCEEDED, BuildState.FAILED):
                raise _over(build, "cancelled")
            if build.state is not BuildState.CANCELLED:
                Transitions(session, self._queue).cancel(build, by=by)
                _log.info("build cancelled", build=build_id, attempt=build.attempt, by=by)
            return self._view(session, build_id)

    def retry(self, build_id: str, by: str, priority: int | None = None) -> BuildView:
        """Queues a failed or cancelled build again, as if it had not failed before.

        Args:
            build_id: The build.
            by: Who wants it.
            priority: Its priority from now on; as before where omitted.

        Raises:
            NotFound: There is no such build.
            InvalidInput: There is no such priority.
            BuildActive: It waits or runs already.
            BuildOver: It succeeded.
        """
        if priority is not None:
            check_priority(priority)
        with self._sessions.begin() as session:
            build = self._lock(session, build_id)
            if build.state in (BuildState.QUEUED, BuildState.RUNNING):
                raise _active(build)
            if build.state is BuildState.SUCCEEDED:
                raise _over(build, "retried")
            Transitions(session, self._queue).requeue(build, failures=0, priority=priority)
            _log.info("build retried", build=build_id, by=by)
            return self._view(session, build_id)

    def requeue(self, build_id: str, by: str) -> BuildView:
        """Takes a running build from its worker and queues it again; the attempt does not count as failed.

        Args:
            build_id: The build.
            by: Who wants it.

        Raises:
            NotFound: There is no such build.
            BuildActive: It waits already.
            BuildOver: It is over.
        """
        with self._sessions.begin() as session:
            build = self._lock(session, build_id)
            if build.state is BuildState.QUEUED:
                raise _active(build)
            if build.state is not BuildState.RUNNING:
                raise _over(build, "queued again")
            Transitions(session, self._queue).hand_back(build, by=by)
            _log.info("build queued again", build=build_id, attempt=build.attempt, by=by)
            return self._view(session, build_id)

    # -- for workers --------------------------------------------------------------------------------------

    def claim(self, build_id: str, worker_id: str) -> Claim | None:
        """Takes a queued build for a worker, as a new attempt.

        Returns:
            What the attempt needs; None where the build is not queued (a job may come twice, or too late).
        """
        with self._sessions.begin() as session:
            claim = BuildStore(session).claim(build_id, worker_id)
            if claim is not None:
                AttemptStore(session).begin(build_id, claim.attempt, worker_id)
                notify_progress(session, build_id)
            return claim

    def standing(self, build_id: str) -> tuple[BuildState, int]:
        """A build's state and the number of its latest attempt: cheap enough to ask at each of its notifications.

        Raises:
            NotFound: There is no such build.
        """
        found = standing(self._sessions.reader, build_id)
        if found is None:
            raise _unknown(build_id)
        return found

    def report(self, claim: Claim, steps: Sequence[StepReport], lines: Sequence[LogLine]) -> None:
        """Notes where an attempt stands and what it logged; also the last words after its build is over.

        The same may be reported twice: an answer may have been lost.

        Args:
            claim: The attempt.
            steps: Steps in the order in which they changed.
            lines: New lines of its log.

        Raises:
            StaleAttempt: The attempt was overtaken: it may stop.
        """
        with self._sessions.begin() as session:
            if not AttemptStore(session).takes_reports(claim.build, claim.attempt):
                raise overtaken(claim)
            progress = ProgressStore(session)
            progress.put_steps(claim.build, claim.attempt, steps)
            progress.add_lines(claim.build, claim.attempt, lines)
            notify_progress(session, claim.build)

    def find_code(self, program_key: Digest, *, model: str) -> ReusableCode | None:
        """Compiled code with this program key, of the same team's artifacts, whose bytes are still there.

        Of the same team's only, because a build that runs hostile code can say any key of what it made: the gate
        proves that code computes the right thing, not that it does nothing else.

        Args:
            program_key: The key.
            model: The model to be built; its team is what stands before the slash.
        """
        with self._sessions.begin() as session:
            candidates = ArtifactStore(session).with_key(program_key, team_of(model))
        for digest in candidates:
            # Reuse saves time: a lost or damaged object only means to compile again.
            with contextlib.suppress(NotFound, BadResponse, TooLarge):
                manifest = read_manifest(self._storage, digest)
                code = manifest.layer(CODE_TYPE)
                if code and self._storage.size(StorageKey.blob(code.digest)) == code.size:
                    return ReusableCode(code=code, config=read_config(self._storage, manifest))
        return None

    def record_weights(self, claim: Claim, digest: Digest) -> Digest:
        """Makes a blob the version's weights, unless one is recorded already.

        Returns:
            The version's weights: this blob or the one of the build that came first.

        Raises:
            StaleAttempt: The attempt was overtaken.
            BlobGone: It is not stored.
        """
        return self._record(claim, (digest,), lambda store: store.record_weights(claim.version_id, digest))

    def record_golden(self, claim: Claim, digest: Digest, parts: Sequence[Digest] = ()) -> Digest:
        """Makes a blob the version's golden inputs and outputs, unless one is recorded already.

        Args:
            claim: The attempt.
            digest: The document.
            parts: The blobs that it names: they are needed as long as it is.

        Returns:
            The version's golden blob: this one or the one of the build that came first.

        Raises:
            StaleAttempt: The attempt was overtaken.
            BlobGone: One of them is not stored.
        """
        needed = (digest, *parts)
        return self._record(claim, needed, lambda store: store.record_golden(claim.version_id, digest))

    def publish(self, claim: Claim, publication: Publication, steps: Sequence[StepReport] = ()) -> None:
        """Ends an attempt with an artifact and queues the job that measures it, in one transaction.

        The same artifact of the same attempt may come again: the first one's answer may have been lost.

        Args:
            claim: The attempt.
            publication: Its result; blobs and manifests were stored by `BlobService.store` already.
            steps: What was not reported yet: who waits for the end must see all of them then.

        Raises:
            StaleAttempt: The attempt was overtaken; nothing was written.
            BlobGone: Something of it is not stored; nothing was written, and another attempt stores it anew.
        """
        with self._sessions.begin() as session:
            builds = BuildStore(session)
            build = builds.held(claim)
            if build is None:
                if builds.published(claim, publication.manifest.digest):
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

    def fail(self, claim: Claim, error: Pt2hubError) -> None:
        """Ends an attempt and its build with an error.

        Raises:
            StaleAttempt: The attempt was overtaken or is over; nothing was written.
        """
        with self._held(claim) as (build, transitions):
            transitions.fail(build, error)

    def retry_later(self, claim: Claim, error: Pt2hubError) -> None:
        """Ends an attempt that failed for a passing reason: its build waits for another one, and longer each time.

        After `MAX_FAILURES` of them the build fails with this error.

        Raises:
            StaleAttempt: The attempt was overtaken or is over; nothing was written.
        """
        with self._held(claim) as (build, transitions):
            transitions.retry_later(build, error)

    def hand_back(self, claim: Claim) -> None:
        """Gives a build up, unfinished, for another worker to take.

        Raises:
            StaleAttempt: The attempt was overtaken or is over; nothing was written.
        """
        with self._held(claim) as (build, transitions):
            transitions.hand_back(build)

    def postpone(self, claim: Claim) -> None:
        """Give a measuring job up for a build that waits; it is taken again when the queue has no build before it.

        Raises:
            StaleAttempt: The attempt was overtaken or is over; nothing was written.
        """
        with self._held(claim) as (build, transitions):
            transitions.hand_back(build, outcome=Outcome.POSTPONED)

    def giving_way(self, jobs: Sequence[str], target: str) -> list[str]:
        """Return which of a worker's measuring jobs are to give their slots to builds that wait.

        Args:
            jobs: The worker's running measuring jobs.
            target: The worker's target, whose queue it takes builds from.
        """
        with self._sessions.begin() as session:
            return MeasuringStore(session).giving_way(jobs, target)

    def _record(
        self, claim: Claim, needed: Sequence[Digest], record: Callable[[VersionStore], Digest]
    ) -> Digest:
        """Records the first of some blobs, which the version then needs, all of them."""
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
        """A transaction over the build of an attempt that still has it."""
        with self._sessions.begin() as session:
            build = BuildStore(session).held(claim)
            if build is None:
                raise overtaken(claim)
            yield build, Transitions(session, self._queue)

    def _lock(self, session: Session, build_id: str) -> HeldBuild:
        build = BuildStore(session).lock(build_id)
        if build is None:
            raise _unknown(build_id)
        return build

    def _view(self, session: Session, build_id: str) -> BuildView:
        view = BuildViewStore(session).view(build_id, silence=self._silence)
        if view is None:
            raise _unknown(build_id)
        return explained(session, [view])[0]


def _unknown(build_id: str) -> NotFound:
    return NotFound(
        f"There is no build {build_id[:80]!r}",
        where="build",
        hint="pt2hub builds lists them; GET /api/v1/builds does the same.",
    )


_ENDED = {
    BuildState.SUCCEEDED: "has succeeded",
    BuildState.FAILED: "has failed",
    BuildState.CANCELLED: "was cancelled",
}
_RESULT = {
    BuildKind.BUILD: "Its artifact is there: pt2hub builds {build} names it.",
    BuildKind.MEASURE: "What it measured is kept. pt2hub measure queues another one.",
}


def _over(build: HeldBuild, done: str) -> BuildOver:
    return BuildOver(
        f"Build {build.id} {_ENDED[build.state]} and cannot be {done}",
        where=build.id,
        hint=f"Queue it again with pt2hub retry {build.id}."
        if build.state in (BuildState.FAILED, BuildState.CANCELLED)
        else _RESULT[build.kind].format(build=build.id),
        context={"state": build.state},
    )


def _active(build: HeldBuild) -> BuildActive:
    stands = "waits in its queue" if build.state is BuildState.QUEUED else "runs"
    return BuildActive(
        f"Build {build.id} {stands} already",
        where=build.id,
        hint=f"Follow it with pt2hub logs -f {build.id}, or end it with pt2hub cancel {build.id} first.",
        context={"state": build.state},
    )
