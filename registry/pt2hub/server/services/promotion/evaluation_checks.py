"""Checks of evaluations on an alias move: their values, and how far they are from those of the version before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.performance.data_sets import DataSet
from pt2hub.rendering.evaluations import with_unit, with_unit_of_difference
from pt2hub.server.db.stores.performance.evaluations import EvaluationStore
from pt2hub.server.db.stores.promotion.policies import ReportedValue
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.services.performance.evaluations import find_obstacle, is_at_most
from pt2hub.server.services.promotion.decisions import METRIC
from pt2hub.wire.performance import PromotionCheckResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.server.services.promotion.decisions import AliasMoveRequest
    from pt2hub.server.services.promotion.policy_spec import MetricLimit
    from pt2hub.wire.evaluations import EvaluationView


class EvaluationChecks:
    """The checks of one metric's evaluations.

    Args:
        limit: What the policy requires of the metric.
    """

    def __init__(self, session: Session, move: AliasMoveRequest, metric: str, limit: MetricLimit) -> None:
        self._session = session
        self._move = move
        self._metric = metric
        self._limit = limit

    def values(self, number: int) -> list[ReportedValue]:
        """Return the newest value of a version on each data set that counts; none if a target is required."""
        if self._limit.target is not None:
            return []
        return [
            ReportedValue("", item.value, item.unit, item.reporter, _data_text(item))
            for item in self._newest(number).values()
        ]

    def results(self, path: str) -> Iterator[PromotionCheckResult]:
        """Yield how far the new version is from the present one, on each data set that both were evaluated on.

        Without such a data set nothing is known, which refuses the move; so does one on which only the present version was
        evaluated: the new one may be worse there.

        Args:
            path: Of the limit in the policy.
        """
        before, after = self._move.before, self._move.after
        if after is None or before == after:
            return
        if before is None:
            message = (
                f"{self._move.alias} was not on a version, so {self._metric} has nothing to be compared with"
            )
            yield self._result(path, passed=True, message=message, found="nothing to compare with")
            return
        old, new = self._newest(before), self._newest(after)
        common = [digest for digest in new if digest in old]
        if not common:
            yield self._result(path, passed=False, message=self._no_common(old, new), missing=True)
            return
        for digest in common:
            yield self._difference(path, old[digest], new[digest])
        for digest, item in old.items():
            if digest not in new:
                message = (
                    f"{self._metric} of version {after} was not evaluated on {_data_text(item)}, on which that of version "
                    f"{before} is {with_unit(f'{item.value:.6g}', item.unit)}"
                )
                yield self._result(path, passed=False, message=message, missing=True)

    def _difference(self, path: str, old: EvaluationView, new: EvaluationView) -> PromotionCheckResult:
        what = f"{self._metric} on {_data_text(new)}"
        obstacle = find_obstacle(old, new)
        if not obstacle and new.unit != self._limit.unit:
            obstacle = f"it was reported in {new.unit}, and the limit is in {self._limit.unit}"
        if obstacle:
            message = f"{what} of versions {new.number} and {old.number} cannot be compared: {obstacle}"
            return self._result(path, passed=False, message=message, missing=True)
        unit = self._limit.unit
        shown = [with_unit(f"{item.value:.6g}", unit) for item in (new, old)]
        change = new.value - old.value
        distance = with_unit_of_difference(f"{abs(change):.3g}", unit)
        way = f"{distance} {'below' if change < 0 else 'above'}"
        values = f"{shown[0]}, {way if change else 'as'} version {old.number} ({shown[1]})"
        passed = self._is_within(old.value, new.value)
        message = f"{what} of version {new.number} is {values}; {self._needed()} is allowed"
        return self._result(path, passed=passed, message=message, found=values)

    def _is_within(self, old: float, new: float) -> bool:
        drop, rise = self._limit.max_drop, self._limit.max_rise
        falls = drop is None or is_at_most(old - new, drop, old, new)
        return falls and (rise is None or is_at_most(new - old, rise, old, new))

    def _no_common(self, old: dict[Digest, EvaluationView], new: dict[Digest, EvaluationView]) -> str:
        """Return why there is nothing to compare."""
        before, after = self._move.before, self._move.after
        by = f" by {', '.join(self._limit.reporters)}" if self._limit.reporters else ""
        on = f" on {self._limit.data_set}" if self._limit.data_set else ""
        if not new:
            return f"{self._metric} of version {after} was not evaluated{by}{on}"
        if not old:
            where = f"which {self._move.alias} {'was on last' if self._move.removed else 'is on'}"
            return f"{self._metric} of version {before}, {where}, was not evaluated{by}{on}"
        sides = [", ".join(_data_text(item) for item in side.values()) for side in (new, old)]
        return (
            f"{self._metric} of version {after} was evaluated on {sides[0]}, that of version {before} on {sides[1]}: "
            "not on the same data set"
        )

    def _newest(self, number: int) -> dict[Digest, EvaluationView]:
        """Return the newest evaluation on each data set that counts, by reporters that count."""
        version = VersionStore(self._session).by_number(self._move.model, number)
        if version is None:
            return {}
        limit = self._limit
        return EvaluationStore(self._session).counting(
            version.id,
            self._metric,
            data_digest=limit.data_digest,
            counts=None if limit.reporters is None else limit.counts,
        )

    def _needed(self) -> str:
        bounds = [("below", self._limit.max_drop), ("above", self._limit.max_rise)]
        return " and ".join(
            f"at most {with_unit_of_difference(f'{bound:.6g}', self._limit.unit)} {way}"
            for way, bound in bounds
            if bound is not None
        )

    def _result(
        self, path: str, *, passed: bool, message: str, found: str = "not comparable", missing: bool = False
    ) -> PromotionCheckResult:
        return PromotionCheckResult(
            {"metric": self._metric, **self._limit.model_dump(exclude_none=True)},
            path,
            passed,
            message,
            missing=missing,
            kind=METRIC,
            found=found,
            needed=f"{self._needed()} the version before, on the same data set",
        )


def _data_text(item: EvaluationView) -> str:
    return str(DataSet(item.data_digest, item.data_set))
