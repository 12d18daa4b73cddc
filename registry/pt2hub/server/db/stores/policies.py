"""Policies: what models' owners demand of performance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.digests import Digest
from pt2hub.domain.performance import METRICS, Threshold, default_threshold
from pt2hub.server.db.performance_schema import Policy as SQLPolicy
from pt2hub.server.db.performance_schema import Series as SQLSeries
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.performance import Measured
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.orm import Session

_THRESHOLD = frozenset(Threshold.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy.

    Attributes:
        revision: Counts its changes from 1.
        document: The policy as JSON, as `services.policy_spec.PolicySpec` writes it.
        by: Name of the token that changed it last.
        at: When, ISO 8601, UTC.
    """

    revision: int
    document: dict[str, Any]
    by: str
    at: str


class PolicyStore:
    """Policies."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def one(self, model_id: int) -> StoredPolicy | None:
        """The policy of a model, None where it never had one."""
        row = self._session.get(SQLPolicy, model_id, populate_existing=True)
        return StoredPolicy(row.revision, row.document, row.by, stamp(row.at)) if row else None

    def put(self, model_id: int, document: dict[str, Any], *, revision: int, by: str) -> bool:
        """Writes a model's policy if it is at the revision that the caller believes, 0 where there is none.

        Args:
            model_id: The model's row.
            document: The policy as JSON.
            revision: The one it is at as far as the caller knows.
            by: Who.

        Returns:
            Whether it was there.
        """
        given = {"document": document, "by": by, "revision": revision + 1}
        if revision == 0:
            new = insert(SQLPolicy).values(model_id=model_id, **given).on_conflict_do_nothing()
            return self._session.scalar(new.returning(SQLPolicy.model_id)) is not None
        mine = (SQLPolicy.model_id == model_id, SQLPolicy.revision == revision)
        changed = update(SQLPolicy).where(*mine).values(**given, at=func.clock_timestamp())
        return self._session.scalar(changed.returning(SQLPolicy.model_id)) is not None

    def thresholds(self, model_id: int) -> dict[str, Threshold]:
        """When a change counts, of every metric that pt2hub or the model's policy knows.

        Of other metrics `domain.performance.default_threshold` says it.
        """
        found = {name: default_threshold(name) for name in METRICS}
        policy = self.one(model_id)
        for name, said in (policy.document.get("metrics", {}) if policy else {}).items():
            found[name] = replace(default_threshold(name), **_known(said))
        return found

    def artifacts(self, model_id: int, number: int) -> dict[str, Measured]:
        """The artifacts of a version, by target."""
        rows = self._session.execute(
            select(SQLBuild.target, SQLArtifact.digest)
            .join(SQLArtifact, SQLArtifact.build_id == SQLBuild.id)
            .join(SQLVersion, SQLVersion.id == SQLBuild.version_id)
            .where(SQLVersion.model_id == model_id, SQLVersion.number == number)
        )
        return {target: Measured(Digest(digest), model_id, number, target) for target, digest in rows}

    def units(self, model_id: int) -> dict[str, str]:
        """The units of the metrics that were ever measured of a model's artifacts, by metric."""
        mine = (SQLSeries.model_id == model_id, SQLSeries.subject == "artifact")
        rows = self._session.execute(select(SQLSeries.metric, SQLSeries.unit).where(*mine).distinct())
        return {metric: unit for metric, unit in rows}  # noqa: C416  # rows are no tuples to mypy


def _known(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a policy says of a metric: left out is what it says nothing of, and what a later pt2hub may add."""
    return {name: value for name, value in said.items() if name in _THRESHOLD and value is not None}
