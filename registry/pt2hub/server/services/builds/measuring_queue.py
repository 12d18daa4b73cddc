"""Queueing of measuring jobs, requested by people or by the publication of an artifact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.builds import MEASURE_PRIORITY, PUBLICATION, MeasureRequest
from pt2hub.server.db.notifications import notify_progress
from pt2hub.server.db.stores.performance.measuring_jobs import Measurable, MeasuringJobStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.principals import Principal
    from pt2hub.server.db.queue import BuildQueue

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EnsuredJob:
    """A queued measuring job.

    Attributes:
        changed: Whether the request added or extended it.
    """

    id: str
    changed: bool


class MeasuringJobQueue:
    """Queues measuring jobs in the caller's transaction."""

    def __init__(self, session: Session, queue: BuildQueue) -> None:
        self._session = session
        self._queue = queue
        self._store = MeasuringJobStore(session)

    def ensure(
        self, wanted: Measurable, request: MeasureRequest, *, priority: int, by: Principal | None = None
    ) -> EnsuredJob:
        """Return a queued job for an artifact: the one that is waiting, or a new one.

        Args:
            wanted: The artifact; its row is locked, or was added by this transaction.
            by: Who requested it, None for the publication of the artifact.
        """
        if job := self._store.waiting(wanted, request.baseline):
            changed = self._store.join(job, request, priority=priority)
            if priority > job.priority:
                self._queue.raise_priority(self._session, [job.id], priority)
                notify_progress(self._session, job.id)
            return EnsuredJob(job.id, changed=changed)
        build_id = self._store.add(wanted.version_id, request, priority=priority, by=by)
        self._queue.defer(self._session, build_id, queue=request.target, priority=priority)
        _log.info("measuring job queued", build=build_id, artifact=request.artifact, by=request.by)
        return EnsuredJob(build_id, changed=True)

    def ensure_published(self, claim: Claim, artifact: Digest) -> str | None:
        """Queue the measuring job of an artifact that this transaction publishes.

        Returns:
            The job, or None where the spec sets `measure.processes` to 0.
        """
        if claim.spec.get("measure", {}).get("processes") == 0:
            return None
        target = claim.target.name
        wanted = Measurable(artifact, claim.version_id, target)
        request = MeasureRequest(target, artifact, by=PUBLICATION, single_process=True)
        return self.ensure(wanted, request, priority=MEASURE_PRIORITY).id
