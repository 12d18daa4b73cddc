"""Measuring jobs: rows of `builds` that name the artifact to measure."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from sqlalchemy import func, select, text, update

from pt2hub.domain.builds import BuildKind, BuildState, MeasureRequest
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Referrer as SQLReferrer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Table
    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.principals import Principal

_BUILDS = cast("Table", SQLBuild.__table__)
# One job gives way per waiting build, the latest started first, since it loses least. A build that was queued a moment ago
# may be about to get a free slot, and one without a job in the queue would gain nothing.
_GIVING_WAY = text("""
    WITH jobs AS (
        SELECT id, priority, row_number() OVER (ORDER BY priority, started_at DESC, id) AS place
        FROM builds WHERE kind = 'measure' AND state = 'running' AND target = :target
    )
    SELECT id FROM jobs
    WHERE id = ANY(:jobs) AND place <= (
        SELECT count(*) FROM builds
        WHERE kind = 'build' AND state = 'queued' AND target = :target AND priority >= jobs.priority
            AND greatest(queued_at, not_before) < clock_timestamp() - CAST(:grace AS interval)
            AND EXISTS (
                SELECT FROM procrastinate_jobs AS delivery
                WHERE delivery.args ->> 'build_id' = builds.id AND delivery.status = 'todo'
            )
    )
""")
GRACE = timedelta(seconds=0.2)
"""How long a build waits for a slot before a measuring job gives way."""


@dataclass(frozen=True, slots=True)
class Measurable:
    """An artifact that can be measured."""

    artifact: Digest
    version_id: int
    target: str


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A queued measuring job whose row is locked."""

    id: str
    priority: int
    request: MeasureRequest


class MeasuringJobStore:
    """Measuring jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock(self, artifacts: Sequence[Digest]) -> list[Measurable]:
        """Lock artifacts, so that concurrent requests for the same one join the same job.

        Returns:
            The existing ones, in the order in which their targets were submitted.
        """
        # Inserting rows that refer to an artifact does not wait for this lock, and vice versa.
        held = (
            select(SQLArtifact.digest).where(SQLArtifact.digest.in_(artifacts)).order_by(SQLArtifact.digest)
        )
        self._session.execute(held.with_for_update(key_share=True))
        rows = self._session.execute(
            select(SQLArtifact.digest, SQLBuild.version_id, SQLBuild.target)
            .join(SQLBuild, SQLBuild.id == SQLArtifact.build_id)
            .where(SQLArtifact.digest.in_(artifacts))
            .order_by(SQLBuild.position, SQLBuild.target)
        )
        return [Measurable(Digest(digest), version_id, target) for digest, version_id, target in rows]

    def waiting(self, wanted: Measurable, baseline: Digest | None = None) -> WaitingJob | None:
        """Lock and return the queued job of an artifact with a baseline; None where there is none.

        Args:
            baseline: The baseline; None for the previous version's artifact.
        """
        row = self._session.execute(
            select(SQLBuild.id, SQLBuild.priority, SQLBuild.request)
            .where(SQLBuild.version_id == wanted.version_id, SQLBuild.kind == BuildKind.MEASURE)
            .where(SQLBuild.state == BuildState.QUEUED)
            .where(SQLBuild.request["artifact"].astext == wanted.artifact)
            .where(SQLBuild.request["baseline"].astext.is_not_distinct_from(baseline))
            .order_by(SQLBuild.queued_at, SQLBuild.id)
            .limit(1)
            .with_for_update(key_share=True)
        ).first()
        return WaitingJob(row[0], row[1], decode(MeasureRequest, row[2])) if row else None

    def join(self, job: WaitingJob, asked: MeasureRequest, *, priority: int) -> bool:
        """Extend a queued job by a request, at the higher priority of the two.

        Returns:
            Whether the job changed.
        """
        own = job.request
        request = replace(
            own,
            repeat=max(asked.repeat, own.repeat),
            single_process=asked.single_process and own.single_process,
        )
        if request == own and priority <= job.priority:
            return False
        statement = update(_BUILDS).where(_BUILDS.c.id == job.id)
        self._session.execute(statement.values(request=encode(request), priority=max(priority, job.priority)))
        return True

    def add(
        self, version_id: int, request: MeasureRequest, *, priority: int, by: Principal | None = None
    ) -> str:
        """Add a queued job, behind the builds of its version.

        Returns:
            Its id.
        """
        build_id = secrets.token_hex(8)
        last = select(func.max(SQLBuild.position)).where(SQLBuild.version_id == version_id)
        self._session.add(
            SQLBuild(
                id=build_id,
                kind=BuildKind.MEASURE,
                version_id=version_id,
                target=request.target,
                position=(self._session.scalar(last) or 0) + 1,
                request=encode(request),
                first_submitted=False,
                state=BuildState.QUEUED,
                priority=priority,
                **({"requested_by": encode(by)} if by else {}),
            )
        )
        return build_id

    def giving_way(self, jobs: Sequence[str], target: str) -> list[str]:
        """Return which running measuring jobs of a target give way to builds that are queued and due."""
        given = {"jobs": list(jobs), "target": target, "grace": GRACE}
        return list(self._session.scalars(_GIVING_WAY, given))

    def has_referrer(self, artifact: Digest, artifact_type: str) -> bool:
        """Return whether an artifact has a referrer of this type."""
        statement = select(SQLReferrer.digest).where(
            SQLReferrer.artifact == artifact, SQLReferrer.artifact_type == artifact_type
        )
        return self._session.execute(statement.limit(1)).first() is not None

    def has_recorded(self, claim: Claim, referrers: Sequence[Digest]) -> bool:
        """Return whether the attempt has recorded these runs."""
        ended = select(SQLBuild.id).where(
            SQLBuild.id == claim.build,
            SQLBuild.attempt == claim.attempt,
            SQLBuild.state == BuildState.SUCCEEDED,
        )
        there = select(func.count()).where(SQLReferrer.digest.in_(referrers))
        done = self._session.execute(ended).first() is not None
        return done and self._session.scalar(there) == len(set(referrers))
