"""Measuring jobs: an artifact is timed again, and nothing is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import PROFILE_TYPE
from pt2hub.domain.builds import MAX_REPEAT, MEASURE_PRIORITY, MeasureRequest
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference, team_of
from pt2hub.errors import InvalidInput, NotFound, Pt2hubError
from pt2hub.server.db.stores.artifacts import ArtifactStore
from pt2hub.server.db.stores.blobs import BlobStore
from pt2hub.server.db.stores.build_views import BuildViewStore
from pt2hub.server.db.stores.builds import BuildStore
from pt2hub.server.db.stores.measuring import MeasuringStore
from pt2hub.server.db.stores.performance import PerformanceStore
from pt2hub.server.db.stores.progress import ProgressStore
from pt2hub.server.services.documents import named_by
from pt2hub.server.services.measuring_jobs import MeasuringJobQueue
from pt2hub.server.services.priorities import check_priority
from pt2hub.server.services.transitions import Transitions, overtaken
from pt2hub.server.services.waiting import explained
from pt2hub.wire.performance import MeasuringJobs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from pt2hub.domain.builds import Claim, StepReport
    from pt2hub.domain.publications import MeasuredRun
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.services.resolve import ResolveService
    from pt2hub.wire.resolution import ArtifactRef, Resolved

_BESIDE = "beside"


class MeasuringService:
    """Queues measuring jobs, and keeps what they find."""

    def __init__(
        self, sessions: Sessions, queue: BuildQueue, resolve: ResolveService, *, silence: timedelta
    ) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            queue: Takes the jobs.
            resolve: Knows what references name.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._queue = queue
        self._resolve = resolve
        self._silence = silence

    # -- for people ---------------------------------------------------------------------------------------

    def measure(
        self,
        reference: str,
        *,
        by: str,
        target: str | None = None,
        repeat: int = 1,
        priority: int = MEASURE_PRIORITY,
        beside: str | None = None,
    ) -> MeasuringJobs:
        """Queues a job for each artifact that a reference names; one that waits for the same is joined.

        A joined job makes as many runs as the greater of the two asked for, and keeps the higher priority.

        Args:
            reference: As for `ResolveService.resolve`.
            by: Who wants it.
            target: Of the version's artifacts only this target's.
            repeat: Runs of each job, 1 to `MAX_REPEAT`.
            priority: Higher comes first.
            beside: Another reference of the same team: what it names for a target is timed in the same processes, in
                place of the version before. Artifacts for targets that it has none for are then left out.

        Raises:
            InvalidInput: A reference is none or both name one artifact, the other one is of another team, or there is
                no such priority or number of runs.
            NotFound: A reference names nothing, or a version has no artifact for the target.
            NotReady: The version has no artifact yet.
            Ambiguous: The beginning of a digest fits several artifacts.
        """
        check_priority(priority)
        _check_repeat(repeat)
        resolved = self._resolve.resolve(reference)
        chosen = _chosen(resolved, target)
        others = (
            self._others(beside, resolved, [item.target for item in chosen]) if beside is not None else {}
        )
        wanted = [item.digest for item in chosen if beside is None or item.target in others]
        with self._sessions.begin() as session:
            jobs = MeasuringJobQueue(session, self._queue)
            ids = [
                jobs.ensure(
                    item,
                    MeasureRequest(item.target, item.artifact, repeat, by, others.get(item.target)),
                    priority=priority,
                )
                for item in MeasuringStore(session).lock(wanted)
            ]
            session.flush()
            views = BuildViewStore(session).of(ids, silence=self._silence)
            return MeasuringJobs(tuple(explained(session, views)))

    # -- for workers --------------------------------------------------------------------------------------

    def is_profiled(self, artifact: Digest) -> bool:
        """Return whether a profile of the artifact's calls is kept: it belongs to the code, and one is enough."""
        with self._sessions.begin() as session:
            return MeasuringStore(session).has_referrer(artifact, PROFILE_TYPE)

    def record(self, claim: Claim, found: Sequence[MeasuredRun], steps: Sequence[StepReport] = ()) -> None:
        """Ends an attempt at a measuring job with its runs, in one transaction.

        The same runs of the same attempt may come again: the first one's answer may have been lost.

        Args:
            claim: The attempt.
            found: What it measured; blobs and manifests were stored by `BlobService.store` already.
            steps: What was not reported yet: who waits for the end must see all of them then.

        Raises:
            StaleAttempt: The attempt was overtaken; nothing was written.
            BlobGone: Something of it is not stored; nothing was written, and another attempt stores it anew.
        """
        artifact = Digest(claim.request["artifact"])
        manifests = [referrer for item in found for referrer in item.referrers]
        with self._sessions.begin() as session:
            build = BuildStore(session).held(claim)
            if build is None:
                if MeasuringStore(session).recorded(claim, [item.digest for item in manifests]):
                    return
                raise overtaken(claim)
            ProgressStore(session).put_steps(claim.build, claim.attempt, steps)
            Transitions(session, self._queue).succeed(build, reused=None)
            ArtifactStore(session).refer(artifact, manifests)
            for item in found:
                PerformanceStore(session).add_run(artifact, item.run)
            blobs = BlobStore(session)
            blobs.refer(named_by(*manifests), f"artifact:{artifact}")
            blobs.drop(claim.holder)

    def _others(self, beside: str, own: Resolved, targets: Sequence[str]) -> dict[str, Digest]:
        """What artifacts are timed beside, by target."""
        _check_team(beside, own)
        try:
            other = self._resolve.resolve(beside)
        except Pt2hubError as error:
            error.where = _BESIDE
            raise
        there = {item.target: item.digest for item in other.artifacts}
        found = {name: there[name] for name in targets if name in there}
        if not found:
            raise NotFound(
                f"{other.model}@{other.number} has no artifact for {' or '.join(targets)} to measure beside",
                where=_BESIDE,
                hint=f"It has one for {', '.join(there)}: --target says which one is meant.",
                context={"targets": list(there)},
            )
        if {item.digest for item in own.artifacts} & {*found.values()}:
            raise InvalidInput(
                f"{own.reference} and {beside} are the same artifact",
                where=_BESIDE,
                hint=f"Name another version: pt2hub versions {own.model} lists them.",
            )
        return found


def _check_team(beside: str, own: Resolved) -> None:
    """Nothing of another team is run beside an artifact, as its code is not reused either (decision 0030)."""
    try:
        model = Reference.parse(beside).model
    except InvalidInput as error:
        error.where = _BESIDE
        raise
    if team_of(model) != team_of(own.model):
        raise InvalidInput(
            f"{model} is of another team than {own.model}",
            where=_BESIDE,
            hint=f"Name a version of a model of {team_of(own.model)}: only those run in the same processes.",
        )


def _check_repeat(repeat: int) -> None:
    if not 1 <= repeat <= MAX_REPEAT:
        raise InvalidInput(
            f"{repeat} is no number of runs",
            where="repeat",
            hint=f"Give a whole number from 1 to {MAX_REPEAT}; each run takes several fresh processes already.",
        )


def _chosen(resolved: Resolved, target: str | None) -> Sequence[ArtifactRef]:
    """The artifacts that are meant."""
    chosen = [item for item in resolved.artifacts if target in (None, item.target)]
    if chosen:
        return chosen
    there = [item.target for item in resolved.artifacts]
    raise NotFound(
        f"{resolved.model}@{resolved.number} has no artifact for {str(target)[:80]!r}",
        where="target",
        hint=f"It has one for {', '.join(there)}. Publishing the same spec with a further target adds one.",
        context={"targets": there},
    )
