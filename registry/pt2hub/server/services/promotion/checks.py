"""Promotion checks of alias moves: each check of a model's policy compares two versions.

A check fails if a metric is worse by more than the allowed amount and the noise, and also if it cannot be compared,
unless the check has `"missing": "pass"`. "Worse" is a ratio in the bad direction: at most 5 % worse is a latency of at
most 1.05 times, and a throughput of at least 1 / 1.05.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode
from pt2hub.domain.performance.measurements import MeasurementState
from pt2hub.domain.performance.metrics import METRICS, OF_JOBS, default_threshold
from pt2hub.errors import Detail, PromotionCheckFailed
from pt2hub.rendering.quantities import quantity
from pt2hub.server.db.stores.builds.measurement_states import MeasurementStateStore
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from pt2hub.server.db.stores.values import storable
from pt2hub.server.services.performance.metric_comparisons import ArtifactComparison
from pt2hub.server.services.promotion.limits import Deterioration, percent_of
from pt2hub.server.services.promotion.policy_spec import PromotionCheck
from pt2hub.wire.performance import PromotionCheckResult

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sqlalchemy.orm import Session

    from pt2hub.server.db.stores.performance.measurements import MeasuredArtifact
    from pt2hub.wire.performance import MetricComparison
    from pt2hub.wire.responses import MeasurementStatus

_MAX_FAILURES = 20
"""Failed checks that are stored and reported per move: many checks on many targets produce thousands."""
_MAX_MESSAGES = 100
_MAX_COMMANDS = 4
_MEASURABLE = frozenset({"environment_differs", "too_noisy", "too_few", "not_measured"})
"""Reasons for an inconclusive comparison for which measuring again may help."""
_OPEN = frozenset({BuildState.QUEUED, BuildState.RUNNING})
_FIELDS = frozenset(PromotionCheck.model_fields)


@dataclass(frozen=True, slots=True)
class AliasMoveRequest:
    """A requested move of an alias, to be checked by the policy.

    Attributes:
        before: The current version, or the last one of a removed alias (otherwise removing it first would bypass the
            checks). None if the alias never existed.
        after: The version to move to, None to remove the alias.
        removed: Whether the alias is currently removed.
    """

    model: str
    model_id: int
    alias: str
    before: int | None
    after: int | None
    removed: bool = False


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A policy's decision on a move.

    Attributes:
        revision: The policy's, 0 where there is none.
        notes: Messages that belong to no check.
    """

    move: AliasMoveRequest
    revision: int
    checks: tuple[PromotionCheckResult, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def failed_checks(self) -> tuple[PromotionCheckResult, ...]:
        """The checks that refuse the move."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def messages(self) -> tuple[str, ...]:
        """Notes and the messages of all checks."""
        return (*self.notes, *(check.message for check in self.checks))[:_MAX_MESSAGES]

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The measuring jobs after which all checks may pass; empty if some check would still fail."""
        if not all(check.jobs for check in self.failed_checks):
            return ()
        return tuple(dict.fromkeys(job for check in self.failed_checks for job in check.jobs))

    def overridden(self) -> dict[str, Any] | None:
        """Return the record of a forced move, None where no check failed."""
        if not self.failed_checks:
            return None
        kept: dict[str, Any] = storable({"revision": self.revision, **self._to_document()})
        return kept

    def error(self) -> PromotionCheckFailed:
        """Return the error of a refused move."""
        move, refused, jobs = self.move, self.failed_checks, self.waits_for
        details = tuple(Detail(check.path, check.message) for check in refused[:_MAX_FAILURES])
        where = f"removed, where it was on {move.before}" if move.removed else f"on {move.before}"
        stays = f"{move.model}@{move.alias} stays {where}"
        return PromotionCheckFailed(
            f"{stays}: {refused[0].message}"
            if len(refused) == 1
            else f"{stays}: {len(refused)} checks of its policy refuse version {move.after}",
            where="policy",
            hint=_hint(move, refused, jobs),
            details=details if len(refused) > 1 else (),
            context={
                "model": move.model,
                "alias": move.alias,
                "from": move.before,
                "to": move.after,
                "revision": self.revision,
                **({"waits_for": list(jobs)} if jobs else {}),
                **self._to_document(),
            },
        )

    def _to_document(self) -> dict[str, Any]:
        return {"count": len(self.failed_checks), "refused": encode(self.failed_checks[:_MAX_FAILURES])}


class PromotionChecks:
    """Evaluates the checks of a model's policy."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._store = PolicyStore(session)

    def evaluate(self, move: AliasMoveRequest) -> PolicyDecision:
        """Return the policy's decision on a move."""
        policy = self._store.one(move.model_id)
        checks = list(_applying(policy.document, move.alias)) if policy and move.after else []
        if policy is None or not checks or move.before == move.after:
            return PolicyDecision(move, policy.revision if policy else 0)
        if move.before is None:
            note = f"{move.alias} was not on a version, so the policy had nothing to compare with"
            return PolicyDecision(move, policy.revision, notes=(note,))
        sides = _Sides(self._session, move, {check.metric for _, check in checks})
        results = tuple(result for path, check in checks for result in sides.checks(path, check))
        return PolicyDecision(move, policy.revision, results)


class _Sides:
    """The versions before and after a move."""

    def __init__(self, session: Session, move: AliasMoveRequest, metrics: Collection[str]) -> None:
        store = PolicyStore(session)
        self._comparison, self._metrics = ArtifactComparison(session), metrics
        self._states = MeasurementStateStore(session)
        self._move = move
        self._before = store.artifacts(move.model_id, move.before or 0)
        self._after = store.artifacts(move.model_id, move.after or 0)
        self._thresholds = store.thresholds(move.model_id)
        self._compared: dict[str, tuple[MetricComparison, ...]] = {}

    def checks(self, path: str, check: PromotionCheck) -> Iterator[PromotionCheckResult]:
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
            yield PromotionCheckResult(check.model_dump(), path, passed=True, message=message, target=target)
        else:
            for found in self._relevant(target, check):
                yield self._check(found, target, path, check)

    def _relevant(self, target: str, check: PromotionCheck) -> list[MetricComparison | None]:
        """Return the comparisons that a check covers; None stands for a missing one."""
        every = self._comparisons(self._before[target], self._after[target])
        found = [item for item in every if item.metric == check.metric and check.batch in (None, item.batch)]
        # Reporters choose their batch sizes: if pt2hub measured too, a check must name a reported batch explicitly.
        found = [item for item in found if not item.reported] or found
        both = [item for item in found if item.ratio or (item.before is not None and item.after is not None)]
        return [*(both or found)] or [None]

    def _comparisons(self, before: MeasuredArtifact, after: MeasuredArtifact) -> tuple[MetricComparison, ...]:
        if after.target not in self._compared:
            self._compared[after.target] = self._comparison.compare(before, after, self._metrics).metrics
        return self._compared[after.target]

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
        message = f"{label} is {worse} in {self._move.after} than in {self._move.before} ({_values(found)})"
        message += f"; at most {percent_of(1 + check.max_worse)} worse is allowed"
        return PromotionCheckResult(check.model_dump(), path, passed, message, target, comparison=found)

    def _missing_measurement(
        self, message: str, target: str, path: str, check: PromotionCheck
    ) -> PromotionCheckResult:
        """Return the result of a check that lacks measurements, with the jobs that will provide them."""
        required = _both(self._move, check.metric)
        if not required:
            return replace(_unknown(path, check, message), target=target)
        sides = ((self._move.after, self._after), (self._move.before, self._before))
        found = self._states.of(own[target].artifact for _, own in sides)
        states = [
            (number, found[own[target].artifact]) for number, own in sides if own[target].artifact in found
        ]
        jobs = tuple(status.job for _, status in states if status.job and status.job_state in _OPEN)
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


def _applying(document: Mapping[str, Any], alias: str) -> Iterator[tuple[str, PromotionCheck]]:
    """Yield the checks that apply to an alias, with their paths; fields of a newer pt2hub are ignored."""
    for index, item in enumerate(document.get("checks", ())):
        check = PromotionCheck.model_validate(
            {name: value for name, value in item.items() if name in _FIELDS}
        )
        if check.alias in (None, alias):
            yield f"checks[{index}]", check


def _unknown(path: str, check: PromotionCheck, message: str) -> PromotionCheckResult:
    """Return the result of a check that cannot be evaluated."""
    passed = check.missing == "pass"
    return PromotionCheckResult(
        check.model_dump(),
        path,
        passed,
        f"{message}; the check lets it pass" if passed else message,
        missing=True,
    )


def _both(move: AliasMoveRequest, metric: str) -> tuple[str, ...]:
    """Return the references of both versions, if measuring jobs measure the metric."""
    return (
        tuple(f"{move.model}@{number}" for number in (move.after, move.before)) if metric in OF_JOBS else ()
    )


def _hint(move: AliasMoveRequest, refused: tuple[PromotionCheckResult, ...], jobs: tuple[str, ...]) -> str:
    command = f'pt2hub alias set {move.model}@{move.after} {move.alias} --reason "..."'
    forced = f"{command} --force"
    waiting = f"`{command} --wait` moves it as soon as it is measured and passes." if jobs else ""
    advice = [waiting or _measure_hint(refused) or _verify_hint(move, refused), _report_hint(refused)]
    return " ".join([*filter(None, advice), f"An admin token can force it: {forced}."])


def _measure_hint(refused: tuple[PromotionCheckResult, ...]) -> str:
    """Return the commands that measure both versions alongside each other."""
    commands = _commands([(item.required, item.target) for item in refused if item.required])
    return f"Measure: {commands}." if commands else ""


def _verify_hint(move: AliasMoveRequest, refused: tuple[PromotionCheckResult, ...]) -> str:
    """Return the commands that measure both versions again, to double-check a failed check."""
    of_jobs = [item for item in refused if not item.missing and item.check["metric"] in OF_JOBS]
    commands = _commands([(_both(move, item.check["metric"]), item.target) for item in of_jobs])
    return f"To double-check, run {commands}." if commands else ""


def _report_hint(refused: tuple[PromotionCheckResult, ...]) -> str:
    """Return how to provide metrics that pt2hub does not measure."""
    metrics = [
        item.check["metric"] for item in refused if item.missing and item.check["metric"] not in METRICS
    ]
    return f"Report {' and '.join(dict.fromkeys(metrics))} of both with `pt2hub report`." if metrics else ""


def _commands(required: list[tuple[tuple[str, ...], str | None]]) -> str:
    commands = [
        f"`pt2hub measure {both[0]} --target {target} --baseline {both[1]}`"
        for both, target in dict.fromkeys(required)
    ]
    return ", ".join(commands[:_MAX_COMMANDS])


def _label(metric: str, target: str, batch: int | None) -> str:
    return f"{metric} on {target}" + (f" at batch {batch}" if batch else "")


def _values(found: MetricComparison) -> str:
    now, before = (
        "-" if value is None else quantity(value, found.unit) for value in (found.after, found.before)
    )
    return f"{now}, was {before}"
