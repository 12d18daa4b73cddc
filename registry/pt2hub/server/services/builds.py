"""Builds, as people follow them and as workers do them.

Every change that a worker asks for compares build, attempt and state, so that an attempt that was overtaken, by
a worker that came back from the dead, changes nothing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from pt2hub.domain.artifacts import CODE_TYPE
from pt2hub.domain.builds import BuildState, Claim, LogLine
from pt2hub.domain.publications import Publication, ReusableCode
from pt2hub.errors import BadResponse, NotFound, StaleAttempt, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts import ArtifactStore
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.progress import ProgressStore
from pt2hub.server.db.stores.versions import VersionStore
from pt2hub.server.services.documents import read_config, read_manifest
from pt2hub.wire.shapes import BuildView, StepView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.errors import Pt2hubError
    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue

__all__ = ["BuildService", "Publication", "ReusableCode"]

StepState = Literal["running", "done", "failed"]
MAX_LINES = 10_000
"""Log lines answered at once."""


class BuildService:
    """Builds."""

    def __init__(self, sessions: Sessions, queue: BuildQueue, storage: Reads, *, silence: timedelta) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            queue: Takes builds that are handed back.
            storage: Holds manifests and configs.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._queue = queue
        self._storage = storage
        self._silence = silence

    def view(self, build_id: str) -> BuildView:
        """A build with the steps of its latest attempt.

        Raises:
            NotFound: There is no such build.
        """
        with self._sessions.begin() as session:
            return self._existing(session, build_id)

    def logs(self, build_id: str, after: int = 0, limit: int = 1000) -> list[LogLine]:
        """Lines of the latest attempt's log.

        Args:
            build_id: The build.
            after: Position of the last line known.
            limit: Lines at most.

        Raises:
            NotFound: There is no such build.
        """
        with self._sessions.begin() as session:
            lines = ProgressStore(session).lines(build_id, after=after, limit=min(limit, MAX_LINES))
            if not lines:
                self._existing(session, build_id)
            return lines

    def claim(self, build_id: str, worker_id: str) -> Claim | None:
        """Takes a queued build for a worker, as a new attempt.

        Returns:
            What the attempt needs; None where the build is not queued (a job may come twice, or too late).
        """
        with self._sessions.begin() as session:
            return BuildStore(session).claim(build_id, worker_id)

    def step(
        self,
        claim: Claim,
        name: str,
        state: StepState,
        *,
        seconds: float | None = None,
        detail: str | None = None,
    ) -> None:
        """Notes where an attempt stands.

        Args:
            claim: The attempt.
            name: One of `domain.builds.STEPS`.
            state: How the step stands.
            seconds: Its wall time, once it ended.
            detail: A short line of progress or result; the last one given stays.

        Raises:
            StaleAttempt: The attempt was overtaken: it may stop.
        """
        with self._sessions.begin() as session:
            if not BuildStore(session).is_latest(claim):
                raise _overtaken(claim)
            view = StepView(name=name, state=state, started_at="", seconds=seconds, detail=detail)
            ProgressStore(session).put_step(claim.build, claim.attempt, view)

    def log(self, claim: Claim, lines: Sequence[LogLine]) -> None:
        """Adds lines to an attempt's log; those of an overtaken attempt go to its own log, which nobody follows."""
        with self._sessions.begin() as session:
            ProgressStore(session).add_lines(claim.build, claim.attempt, lines)

    def find_code(self, program_key: Digest) -> ReusableCode | None:
        """Compiled code of any published artifact with this program key whose bytes are still there."""
        with self._sessions.begin() as session:
            candidates = ArtifactStore(session).with_key(program_key)
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
        """
        return self._record(claim, lambda versions: versions.record_weights(claim.version_id, digest))

    def record_golden(self, claim: Claim, digest: Digest) -> Digest:
        """Makes a blob the version's golden inputs and outputs, unless one is recorded already.

        Returns:
            The version's golden blob: this one or the one of the build that came first.

        Raises:
            StaleAttempt: The attempt was overtaken.
        """
        return self._record(claim, lambda versions: versions.record_golden(claim.version_id, digest))

    def publish(self, claim: Claim, publication: Publication) -> None:
        """Ends an attempt with an artifact, in one transaction.

        Args:
            claim: The attempt.
            publication: Its result; blobs and manifests are in the storage already.

        Raises:
            StaleAttempt: The attempt was overtaken; nothing was written.
        """
        with self._sessions.begin() as session:
            if not BuildStore(session).finish(claim, BuildState.SUCCEEDED):
                raise _overtaken(claim)
            ArtifactStore(session).add(claim.build, claim.attempt, publication)

    def fail(self, claim: Claim, error: Pt2hubError) -> None:
        """Ends an attempt with an error.

        Raises:
            StaleAttempt: The attempt was overtaken; nothing was written.
        """
        with self._sessions.begin() as session:
            if not BuildStore(session).finish(claim, BuildState.FAILED, error=error.as_dict()):
                raise _overtaken(claim)

    def hand_back(self, claim: Claim) -> None:
        """Gives a build up, unfinished, for another worker to take.

        Raises:
            StaleAttempt: The attempt was overtaken; nothing was written.
        """
        with self._sessions.begin() as session:
            if not BuildStore(session).requeue(claim):
                raise _overtaken(claim)
            self._queue.defer(session, claim.build, queue=claim.target.name)

    def _record(self, claim: Claim, record: Callable[[VersionStore], Digest]) -> Digest:
        with self._sessions.begin() as session:
            if not BuildStore(session).hold(claim):
                raise _overtaken(claim)
            return record(VersionStore(session))

    def _existing(self, session: Session, build_id: str) -> BuildView:
        view = BuildStore(session).view(build_id, silence=self._silence)
        if view is None:
            raise NotFound(f"There is no build {build_id[:80]!r}", where="build")
        return view


def _overtaken(claim: Claim) -> StaleAttempt:
    return StaleAttempt(
        f"Attempt {claim.attempt} at build {claim.build} was overtaken or is over",
        where=claim.build,
        hint="Nothing was written. The worker was taken for lost, or the build was ended elsewhere.",
        context={"attempt": claim.attempt, "worker": claim.worker},
    )
