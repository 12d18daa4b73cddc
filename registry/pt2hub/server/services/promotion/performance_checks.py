"""Performance checks of alias moves: each compares a metric of two versions.

A check fails if a metric is worse by more than the allowed amount and the noise, and also if it cannot be compared,
unless the check has `"missing": "pass"`. "Worse" is a ratio in the bad direction: at most 5 % worse is a latency of at
most 1.05 times, and a throughput of at least 1 / 1.05.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pt2hub.domain.builds import UNFINISHED, BuildState
from pt2hub.domain.performance.measurements import MeasurementState
from pt2hub.domain.performance.metrics import OF_JOBS, default_threshold
from pt2hub.rendering.changes import SAME, is_shown
from pt2hub.rendering.quantities import quantity
from pt2hub.server.db.stores.builds.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.performance.evaluations import EvaluationStore
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from pt2hub.server.services.performance.metric_comparisons import ArtifactComparison
from pt2hub.server.services.promotion.limits import Deterioration, percent_of
from pt2hub.wire.performance import PromotionCheckResult

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.server.services.promotion.decisions import AliasMoveRequest
    from pt2hub.server.services.promotion.policy_spec import PromotionCheck
    from pt2hub.wire.performance import MetricComparison
    from pt2hub.wire.responses import MeasurementStatus

_MEASURABLE = frozenset({"environment_differs", "too_noisy", "too_few", "not_measured"})
"""Reasons for an inconclusive comparison for which measuring again may help."""
_SHOWN_DIFFERENCE = 0.001
"""Difference of ratios that readers of two times would notice."""


class PerformanceChecks:
    """Compares the versions before and after a move."""

    def __init__(self, session: Session, move: AliasMoveRequest, metrics: Collection[str]) -> None:
        store = PolicyStore(session)
        self._comparison, self._metrics = ArtifactComparison(session), metrics
        self._state_store = MeasurementStateStore(session)
        self._session, self._move = session, move
        self._before = store.artifacts(move.model_id, move.before or 0)
        self._after = store.artifacts(move.model_id, move.after or 0)
        self._thresholds = store.thresholds(move.model_id)

    @cached_property
    def _compared(self) -> dict[str, tuple[MetricComparison, ...]]:
        """The comparisons of all targets that both versions have."""
        both = [target for target in self._after if target in self._before]
        pairs = [(self._before[target], self._after[target]) for target in both]
        found = self._comparison.compare_all(pairs, self._metrics)
        return {target: item.metrics for target, item in zip(both, found, strict=True)}

    @cached_property
    def _states(self) -> dict[Digest, MeasurementStatus]:
        """The states of the measurements of both versions' artifacts."""
        return self._state_store.of(
            side.artifact for sides in (self._after, self._before) for side in sides.values()
        )

    @cached_property
    def _evaluated(self) -> dict[str, str]:
        """The metrics that versions of the model were evaluated by."""
        return EvaluationStore(self._session).units(self._move.model_id)

    def results(self, path: str, check: PromotionCheck) -> Iterator[PromotionCheckResult]:
        """Yield the results of a check, on each of its targets."""
        both = [name for name in self._after if name in self._before]
        for target in [check.target] if check.target else both:
            yield from self._on(target, path, check)
        if not check.target and not both:
            message = f"{self._move.after} and {self._move.before} have no common target to compare {check.metric} on"
            yield _unknown(path, check, message)

    def _on(self, target: str, path: str, check: PromotionCheck) -> Iterator[PromotionCheckResult]:
        if target not in self._after:
            message = f"{check.metric} on {target} cannot be compared: {self._move.after} has no artifact for that target"
            yield replace(_unknown(path, check, message), target=target)
        elif target not in self._before:
            message = (
                f"{check.metric} on {target}: {self._move.before} had no artifact for it to compare with"
            )
            yield PromotionCheckResult(
                check.model_dump(),
                path,
                passed=True,
                message=message,
                target=target,
                found="nothing to compare with",
                needed=_needed(check),
            )
        else:
            for found in self._relevant(target, check):
                yield self._check(found, target, path, check)

    def _relevant(self, target: str, check: PromotionCheck) -> list[MetricComparison | None]:
        """Return the comparisons that a check covers; None stands for a missing one."""
        found = [
            item
            for item in self._compared[target]
            if item.metric == check.metric and check.batch in (None, item.batch)
        ]
        # Reporters choose their batch sizes: if pt2hub measured too, a check must name a reported batch explicitly.
        found = [item for item in found if not item.reported] or found
        both = [item for item in found if item.ratio or (item.before is not None and item.after is not None)]
        return [*(both or found)] or [None]

    def _check(
        self, found: MetricComparison | None, target: str, path: str, check: PromotionCheck
    ) -> PromotionCheckResult:
        label = _label(check.metric, target, found.batch if found else check.batch)
        if found is None:
            message = f"{label} cannot be compared: it was measured for neither {self._move.before} nor {self._move.after}"
            return self._missing_measurement(message, target, path, check)
        worse = Deterioration.of(found, self._thresholds.get(check.metric) or default_threshold(check.metric))
        if (passed := worse.within(check.max_worse)) is None:
            message = (
                f"{label} cannot be compared: {found.detail or (found.reason or 'unknown').replace('_', ' ')}"
            )
            if found.reason in _MEASURABLE:
                return replace(self._missing_measurement(message, target, path, check), comparison=found)
            return replace(_unknown(path, check, message), target=target, comparison=found)
        values, now, before = _values(found), self._move.after, self._move.before
        # A limit may be finer than what is shown: what fails is never called `no change`.
        is_same = passed and found.ratio is not None and not is_shown(found.ratio)
        how = (
            f"{label}: {SAME} from {before} to {now}"
            if is_same
            else f"{label} is {worse} in {now} than in {before}"
        )
        message = f"{how} ({values}); {_needed(check)} is allowed"
        return PromotionCheckResult(
            check.model_dump(),
            path,
            passed,
            message,
            target,
            comparison=found,
            found=f"{SAME if is_same else worse} ({values})",
            needed=_needed(check),
        )

    def _missing_measurement(
        self, message: str, target: str, path: str, check: PromotionCheck
    ) -> PromotionCheckResult:
        """Return the result of a check that lacks measurements, with the jobs that will provide them."""
        required = self._move.both if check.metric in OF_JOBS else ()
        if not required:
            if check.metric in self._evaluated:
                message += "; evaluations of versions are compared by limits of a protected alias (max_drop), and not by checks"
            return replace(_unknown(path, check, message), target=target)
        sides = ((self._move.after, self._after), (self._move.before, self._before))
        states = [
            (number, self._states[own[target].artifact])
            for number, own in sides
            if own[target].artifact in self._states
        ]
        jobs = tuple(status.job for _, status in states if status.job and status.job_state in UNFINISHED)
        text = "; ".join(
            [message, *filter(None, (_measurement_text(number, status) for number, status in states))]
        )
        return replace(_unknown(path, check, text), target=target, required=required, jobs=jobs)


def _measurement_text(number: int | None, status: MeasurementStatus) -> str:
    """Return the state of a version that is not measured or is being measured again; empty for others."""
    reason = f": {status.reason}" if status.reason else ""
    match status.state, status.job_state:
        case MeasurementState.MEASURED, BuildState.QUEUED | BuildState.RUNNING:
            return f"version {number} is measured again by job {status.job}, which is {status.job_state}"
        case MeasurementState.WAITING | MeasurementState.MEASURING, _:
            return (
                f"version {number} is not measured yet: its measuring job {status.job} is {status.job_state}"
            )
        case MeasurementState.FAILED, _:
            return f"measuring version {number} failed in job {status.job}{reason}"
        case MeasurementState.NOT_MEASURED, _:
            return f"version {number} is not measured yet{reason}"
        case _:
            return ""


def _unknown(path: str, check: PromotionCheck, message: str) -> PromotionCheckResult:
    """Return the result of a check that cannot be evaluated."""
    passed = check.missing == "pass"
    return PromotionCheckResult(
        check.model_dump(),
        path,
        passed,
        f"{message}; the check lets it pass" if passed else message,
        missing=True,
        found="not comparable",
        needed=_needed(check),
    )


def _needed(check: PromotionCheck) -> str:
    return f"at most {percent_of(1 + check.max_worse)} worse"


def _label(metric: str, target: str, batch: int | None) -> str:
    return f"{metric} on {target}" + (f" at batch {batch}" if batch else "")


def _values(found: MetricComparison) -> str:
    now, before = (
        "-" if value is None else quantity(value, found.unit) for value in (found.after, found.before)
    )
    if found.ratio and found.before and found.after:
        alone = found.after / found.before
        if abs(found.ratio - alone) > _SHOWN_DIFFERENCE:  # a median of ratios is no ratio of medians
            return f"side by side; on their own {now} and {before}"
    return f"{now}, was {before}"
