"""Measuring jobs: benchmark an artifact again without building."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import BASELINE_PROFILE_TYPE, PROFILE_TYPE
from pt2hub.domain.audit import Action
from pt2hub.domain.builds import MAX_REPEAT, MEASURE_PRIORITY, MeasureRequest
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference, team_of
from pt2hub.errors import InvalidInput, NotFound, Pt2hubError
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.builds.build_views import BuildViewStore
from pt2hub.server.db.stores.builds.builds import BuildStore
from pt2hub.server.db.stores.builds.progress import ProgressStore
from pt2hub.server.db.stores.performance.measurements import PerformanceStore
from pt2hub.server.db.stores.performance.measuring_jobs import MeasuringJobStore
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.blobs.documents import named_by
from pt2hub.server.services.builds.measuring_queue import MeasuringJobQueue
from pt2hub.server.services.builds.priorities import check_priority
from pt2hub.server.services.builds.quotas import TeamQuotas
from pt2hub.server.services.builds.transitions import Transitions, overtaken
from pt2hub.server.services.builds.waits import explain_waits
from pt2hub.wire.performance import MeasuringJobs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from pt2hub.domain.builds import Claim, StepReport
    from pt2hub.domain.limits import Limits
    from pt2hub.domain.publications import MeasuredRun
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.services.artifacts.resolution import ResolutionService
    from pt2hub.wire.resolution import ArtifactRef, ResolvedReference

_BASELINE = "baseline"
_PROFILES = {"artifact": PROFILE_TYPE, "torch_compile": BASELINE_PROFILE_TYPE}
"""Media types of profiles, by implementation."""


class MeasuringJobService:
    """Queues measuring jobs, and records their results."""

    def __init__(
        self,
        sessions: Sessions,
        queue: BuildQueue,
        resolve: ResolutionService,
        *,
        heartbeat_timeout: timedelta,
        limits: Limits,
    ) -> None:
        self._sessions = sessions
        self._queue = queue
        self._resolve = resolve
        self._heartbeat_timeout = heartbeat_timeout
        self._limits = limits

    # -- for people ---------------------------------------------------------------------------------------

    def measure(
        self,
        reference: str,
        *,
        by: Actor,
        target: str | None = None,
        repeat: int = 1,
        priority: int = MEASURE_PRIORITY,
        baseline: str | None = None,
    ) -> MeasuringJobs:
        """Queue a job for each artifact of a reference, or join the job that is already queued.

        A joined job gets the greater number of runs and the higher priority of the two requests.

        Args:
            reference: As for `ResolveService.resolve`.
            target: Only the artifact for this target.
            repeat: Runs per job, 1 to `MAX_REPEAT`.
            baseline: Another reference of the same team, whose artifact for the target is the baseline in place of the
                previous version's. Artifacts for targets that it lacks are left out.

        Raises:
            InvalidInput: A reference is malformed, both name the same artifact, the other is of another team, or the
                priority or number of runs is out of range.
            NotFound: A reference does not exist, or has no artifact for the target.
            NotReady: The version has no artifact yet.
            Ambiguous: A digest prefix matches several artifacts.
            QuotaExceeded: The team has too many builds and measuring jobs.
        """
        check_priority(priority)
        _check_repeat(repeat)
        resolved = self._resolve.resolve(reference)
        chosen = _chosen(resolved, target)
        others = (
            self._others(baseline, resolved, [item.target for item in chosen]) if baseline is not None else {}
        )
        wanted = [item.digest for item in chosen if baseline is None or item.target in others]
        with self._sessions.begin() as session:
            quotas = TeamQuotas(session, self._limits)
            quotas.lock(resolved.model)
            quotas.check_builds(resolved.model, len(wanted))
            jobs = MeasuringJobQueue(session, self._queue)
            ensured = [
                jobs.ensure(
                    item,
                    MeasureRequest(item.target, item.artifact, repeat, by.name, others.get(item.target)),
                    priority=priority,
                    by=by.principal,
                )
                for item in MeasuringJobStore(session).lock(wanted)
            ]
            session.flush()
            if changed := [job.id for job in ensured if job.changed]:
                audit_log.record(
                    session,
                    by,
                    Action.MEASUREMENT_QUEUE,
                    f"{resolved.model}@{resolved.number}",
                    models=[resolved.model],
                    jobs=changed,
                    repeat=repeat,
                    priority=priority,
                    baseline=baseline,
                )
            ids = [job.id for job in ensured]
            views = BuildViewStore(session).of(ids, heartbeat_timeout=self._heartbeat_timeout)
            return MeasuringJobs(tuple(explain_waits(session, views)))

    # -- for workers --------------------------------------------------------------------------------------

    def profiled(self, artifact: Digest) -> frozenset[str]:
        """Return the implementations of which the artifact has a profile; it depends on the code only, so one is enough."""
        with self._sessions.begin() as session:
            store = MeasuringJobStore(session)
            return frozenset(name for name, kind in _PROFILES.items() if store.has_referrer(artifact, kind))

    def record(self, claim: Claim, found: Sequence[MeasuredRun], steps: Sequence[StepReport] = ()) -> None:
        """Record the runs of a measuring job and end its attempt, in one transaction.

        Idempotent: a worker that lost the response records again.

        Args:
            found: The runs; their blobs and manifests are already stored by `BlobService.store`.
            steps: Steps not reported yet, so that they are complete when the job ends.

        Raises:
            StaleAttempt: The attempt was overtaken; nothing was written.
            BlobGone: A blob is not stored; nothing was written, and another attempt stores it again.
        """
        artifact = Digest(claim.request["artifact"])
        manifests = [referrer for item in found for referrer in item.referrers]
        with self._sessions.begin() as session:
            build = BuildStore(session).held(claim)
            if build is None:
                if MeasuringJobStore(session).has_recorded(claim, [item.digest for item in manifests]):
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

    def _others(self, baseline: str, own: ResolvedReference, targets: Sequence[str]) -> dict[str, Digest]:
        """Return the baseline artifacts, by target."""
        not_found.require_readable(_baseline_model(baseline, own), where=_BASELINE)
        try:
            other = self._resolve.resolve(baseline)
        except Pt2hubError as error:
            error.where = _BASELINE
            raise
        there = {item.target: item.digest for item in other.artifacts}
        found = {name: there[name] for name in targets if name in there}
        if not found:
            raise NotFound(
                f"{other.model}@{other.number} has no artifact for {' or '.join(targets)} to compare with",
                where=_BASELINE,
                hint=f"It has artifacts for {', '.join(there)}: choose one of these targets.",
                context={"targets": list(there)},
            )
        if {item.digest for item in own.artifacts} & {*found.values()}:
            raise InvalidInput(
                f"{own.reference} and {baseline} are the same artifact",
                where=_BASELINE,
                hint=f"Choose another version: pt2hub versions {own.model} lists them.",
            )
        return found


def _baseline_model(baseline: str, own: ResolvedReference) -> str:
    """Return a baseline's model, of the same team: another's code must not run in the same processes (decision 0030)."""
    try:
        model = Reference.parse(baseline).model
    except InvalidInput as error:
        error.where = _BASELINE
        raise
    if team_of(model) != team_of(own.model):
        raise InvalidInput(
            f"{model} and {own.model} belong to different teams",
            where=_BASELINE,
            hint=f"Choose a version of a model of {team_of(own.model)}: only those run in the same processes.",
        )
    return model


def _check_repeat(repeat: int) -> None:
    if not 1 <= repeat <= MAX_REPEAT:
        raise InvalidInput(
            f"repeat must be between 1 and {MAX_REPEAT}, got {repeat}",
            where="repeat",
            hint="One run is usually enough: it already takes several fresh processes.",
        )


def _chosen(resolved: ResolvedReference, target: str | None) -> Sequence[ArtifactRef]:
    """Return the artifacts to measure."""
    chosen = [item for item in resolved.artifacts if target in (None, item.target)]
    if chosen:
        return chosen
    there = [item.target for item in resolved.artifacts]
    raise NotFound(
        f"{resolved.model}@{resolved.number} has no artifact for {str(target)[:80]!r}",
        where="target",
        hint=f"It has artifacts for {', '.join(there)}. To add one, publish the same spec with a further target.",
        context={"targets": there},
    )
