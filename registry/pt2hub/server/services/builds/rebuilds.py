"""Rebuilds: build a published artifact again, to replace its damaged files if the bytes are the same.

A rebuild changes neither the artifact nor its version. Where its bytes are others, it fails and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.audit import Action
from pt2hub.domain.builds import BuildState
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.builds.progress import ProgressStore
from pt2hub.server.db.stores.builds.rebuilds import RebuildStore
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.builds.transitions import Transitions, overtaken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.builds import Claim, StepReport
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.db.stores.builds.rebuilds import Rebuild

_log = structlog.get_logger(__name__)


class RebuildService:
    """Queues rebuilds, and records their results."""

    def __init__(self, sessions: Sessions, queue: BuildQueue) -> None:
        self._sessions = sessions
        self._queue = queue

    # -- for the operator ---------------------------------------------------------------------------------

    def request(self, digest: Digest, *, by: Actor) -> str | None:
        """Queue a rebuild of the artifact that made a blob, or join the one that is queued or running.

        Returns:
            The rebuild's id; None where no build made the blob: it was uploaded, or is no code and no weights.
        """
        with self._sessions.begin() as session:
            store = RebuildStore(session)
            wanted = store.find(digest)
            if wanted is None:
                return None
            if found := store.unfinished(wanted):
                return found
            build_id = store.add(wanted, by=by.principal)
            session.flush()
            self._queue.defer(session, build_id, queue=wanted.request.target, priority=0)
            audit_log.record(session, by, Action.BUILD_REBUILD, build_id, artifact=wanted.artifact)
            _log.info("rebuild queued", build=build_id, artifact=wanted.artifact, by=by.name)
            return build_id

    def can_rebuild(self, digest: Digest) -> bool:
        """Return whether a build made a blob."""
        with self._sessions.begin() as session:
            return RebuildStore(session).find(digest) is not None

    def latest(self, digest: Digest) -> Rebuild | None:
        """Return the latest rebuild of the artifact that made a blob."""
        with self._sessions.begin() as session:
            store = RebuildStore(session)
            wanted = store.find(digest)
            return store.latest(wanted) if wanted else None

    # -- for workers --------------------------------------------------------------------------------------

    def damaged(self, artifact: Digest) -> dict[str, Digest]:
        """Return which files of an artifact are damaged; see `RebuildStore.damaged`."""
        with self._sessions.begin() as session:
            return RebuildStore(session).damaged(artifact)

    def record(self, claim: Claim, steps: Sequence[StepReport] = ()) -> None:
        """End an attempt whose bytes replaced all that was damaged; they are stored by `BlobService.store`.

        Idempotent: a worker that lost the response records again.

        Args:
            steps: Steps not reported yet, so that they are complete when the rebuild ends.

        Raises:
            StaleAttempt: The attempt was overtaken; nothing was written.
        """
        with self._sessions.begin() as session:
            builds = BuildStore(session)
            build = builds.held(claim)
            if build is None:
                now = builds.lock(claim.build)
                if now and (now.state, now.attempt) == (BuildState.SUCCEEDED, claim.attempt):
                    return
                raise overtaken(claim)
            ProgressStore(session).put_steps(claim.build, claim.attempt, steps)
            Transitions(session, self._queue).succeed(build, reused=None)
            BlobStore(session).drop(claim.holder)
