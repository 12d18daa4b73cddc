"""Policies of models, and the thresholds of their metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import distinct_on, insert

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.metrics import METRICS, Threshold, default_threshold
from pt2hub.domain.principals import Principal, read_principal
from pt2hub.server.db.performance_schema import Measurement as SQLMeasurement
from pt2hub.server.db.performance_schema import Policy as SQLPolicy
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.snapshots import recall
from pt2hub.server.db.stores.performance.measurements import MeasuredArtifact
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.orm import Session


_THRESHOLD_FIELDS = frozenset(Threshold.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A model's policy, at a revision.

    Attributes:
        revision: Counts the changes from 1.
        document: The policy as JSON, as written by `services.promotion.policy_spec.PolicySpec`.
        at: Time of the last change, ISO 8601, UTC.
    """

    revision: int
    document: dict[str, Any]
    by: str
    at: str
    principal: Principal | None = None


@dataclass(frozen=True, slots=True)
class ReportedValue:
    """A reported value of a metric: of one artifact, or of a version on one data set.

    Attributes:
        target: Target of the artifact; empty for an evaluation.
        data: Data set of an evaluation, as text; empty for an artifact.
    """

    target: str
    value: float
    unit: str
    reporter: str
    data: str = ""


class PolicyStore:
    """Policies."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def one(self, model_id: int) -> StoredPolicy | None:
        """Return the policy of a model, None if it never had one."""
        row = recall(
            self._session,
            ("policy", model_id),
            lambda: self._session.get(SQLPolicy, model_id, populate_existing=True),
        )
        return _policy(row) if row else None

    def put(self, model_id: int, document: dict[str, Any], *, revision: int, by: Principal) -> bool:
        """Write a model's policy if it is at the expected revision, 0 for none.

        Returns:
            Whether it was at that revision.
        """
        given = {"document": document, "by": by.name, "principal": encode(by), "revision": revision + 1}
        if revision == 0:
            new = insert(SQLPolicy).values(model_id=model_id, **given).on_conflict_do_nothing()
            return self._session.scalar(new.returning(SQLPolicy.model_id)) is not None
        mine = (SQLPolicy.model_id == model_id, SQLPolicy.revision == revision)
        changed = update(SQLPolicy).where(*mine).values(**given, at=func.clock_timestamp())
        return self._session.scalar(changed.returning(SQLPolicy.model_id)) is not None

    def thresholds(self, model_id: int) -> dict[str, Threshold]:
        """Return the thresholds of all metrics that pt2hub or the model's policy knows.

        For other metrics, use `domain.performance.metrics.default_threshold`.
        """
        found = {name: default_threshold(name) for name in METRICS}
        policy = self.one(model_id)
        for name, rule in (policy.document.get("metrics", {}) if policy else {}).items():
            found[name] = replace(default_threshold(name), **_drop_defaults(rule))
        return found

    def artifacts(self, model_id: int, number: int) -> dict[str, MeasuredArtifact]:
        """Return the artifacts of a version, by target."""
        rows = self._session.execute(
            select(SQLBuild.target, SQLArtifact.digest)
            .join(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .where(SQLVersion.model_id == model_id, SQLVersion.number == number)
        )
        return {target: MeasuredArtifact(Digest(digest), model_id, number, target) for target, digest in rows}

    def verifications(self, model_id: int, number: int) -> dict[str, dict[str, Any]]:
        """Return the verification reports of a version's artifacts, by target."""
        rows = self._session.execute(
            select(SQLBuild.target, SQLArtifact.verification)
            .join(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .where(SQLVersion.model_id == model_id, SQLVersion.number == number)
            .order_by(SQLBuild.position)
        )
        return {target: report for target, report in rows}  # noqa: C416  # rows are not tuples to mypy

    def reported(self, model_id: int, number: int, metric: str) -> list[ReportedValue]:
        """Return the newest value of a metric that each reporter has for each of a version's artifacts, newest first."""
        of_one = (SQLSeries.target, SQLMeasurement.reporter)
        rows = self._session.execute(
            select(
                SQLSeries.target,
                SQLMeasurement.value,
                SQLSeries.unit,
                SQLMeasurement.reporter,
                SQLMeasurement.measured_at,
                SQLMeasurement.id,
            )
            .join(SQLMeasurement, SQLMeasurement.series_id == SQLSeries.id)
            .where(
                SQLSeries.model_id == model_id,
                SQLSeries.metric == metric,
                SQLSeries.implementation == "artifact",
                SQLMeasurement.number == number,
                SQLMeasurement.reporter.is_not(None),
            )
            .order_by(*of_one, SQLMeasurement.measured_at.desc(), SQLMeasurement.id.desc())
            .ext(distinct_on(*of_one))
        )
        newest = sorted(rows, key=lambda row: (row.measured_at, row.id), reverse=True)
        return [ReportedValue(row.target, row.value, row.unit, row.reporter or "") for row in newest]

    def units(self, model_id: int) -> dict[str, str]:
        """Return the units of all metrics that were measured for a model's artifacts, by metric."""
        mine = (SQLSeries.model_id == model_id, SQLSeries.implementation == "artifact")
        rows = self._session.execute(select(SQLSeries.metric, SQLSeries.unit).where(*mine).distinct())
        return {metric: unit for metric, unit in rows}  # noqa: C416  # rows are not tuples to mypy


def _policy(row: SQLPolicy) -> StoredPolicy:
    return StoredPolicy(row.revision, row.document, row.by, stamp(row.at), read_principal(row.principal))


def _drop_defaults(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a policy sets for a metric, without unknown ones of a newer pt2hub."""
    return {name: value for name, value in rule.items() if name in _THRESHOLD_FIELDS and value is not None}
