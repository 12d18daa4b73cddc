"""Retention policies, and what they decide by: the newest versions and their last pulls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import delete, func, select, text
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.codec import encode
from pt2hub.domain.principals import Principal, read_principal
from pt2hub.server.db.retention_schema import RetentionPolicy as SQLPolicy
from pt2hub.server.db.stores.retention.pull_history import SETTING
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.orm import Session

_POLICIES = cast("Table", SQLPolicy.__table__)
_MODELS = text("""
    SELECT name FROM models
    WHERE name = :scope OR starts_with(name, :scope || '/') ORDER BY name""")
_GOVERNED = text("""
    SELECT DISTINCT models.name FROM models JOIN retention_policies AS policies
    ON policies.scope = models.name OR policies.scope = split_part(models.name, '/', 1)
    ORDER BY models.name""")
# Newer versions than the oldest one of the newest N with an artifact stay, whatever became of their builds.
_EXPIRED = text("""
    WITH own AS (
        SELECT versions.id, versions.number, versions.created_at, version_pulls.pulled_on,
            EXISTS (SELECT FROM builds JOIN artifacts ON artifacts.build_id = builds.id
                WHERE builds.version_id = versions.id) AS built
        FROM versions JOIN models ON models.id = versions.model_id
        LEFT JOIN version_pulls ON version_pulls.version_id = versions.id
        WHERE models.name = :model),
    oldest AS (SELECT number FROM own WHERE built ORDER BY number DESC OFFSET :last - 1 LIMIT 1)
    SELECT own.number FROM own, oldest
    WHERE own.number < oldest.number
    AND own.number > :after AND (CAST(:number AS integer) IS NULL OR own.number = :number)
    AND EXISTS (SELECT FROM aliases WHERE aliases.version_id = own.id) = :pinned
    AND (CAST(:days AS integer) IS NULL OR (
        EXISTS (SELECT FROM server_settings WHERE name = :recorded_since
            AND CAST(value AS timestamptz) < now() - make_interval(days => CAST(:days AS integer)))
        AND own.created_at < now() - make_interval(days => CAST(:days AS integer))
        AND coalesce(own.pulled_on < (now() - make_interval(days => CAST(:days AS integer)))::date, true)))
    ORDER BY own.number LIMIT :most""")
_PULLED = text("""
    INSERT INTO version_pulls (version_id, pulled_on)
    SELECT versions.id, current_date FROM versions JOIN models ON models.id = versions.model_id
    WHERE models.name = :model AND versions.number = :number
    ON CONFLICT (version_id) DO UPDATE SET pulled_on = excluded.pulled_on
    WHERE version_pulls.pulled_on < excluded.pulled_on""")
_NEWEST = text("SELECT coalesce(max(id), 0) FROM versions")
_COUNT_AS_PULLED = text("""
    INSERT INTO version_pulls (version_id, pulled_on) SELECT id, current_date FROM versions WHERE id > :after
    ON CONFLICT (version_id) DO UPDATE SET pulled_on = excluded.pulled_on
    WHERE version_pulls.pulled_on < excluded.pulled_on""")


@dataclass(frozen=True, slots=True)
class StoredRetention:
    """A retention policy.

    Attributes:
        scope: `team/name` or `team`.
        last: How many of the newest versions are kept; None keeps everything.
        pulled_within_days: Versions pulled within so many days are kept too; None for none.
        at: ISO 8601, UTC.
    """

    scope: str
    last: int | None
    pulled_within_days: int | None
    by: Principal | None
    at: str


class RetentionStore:
    """Retention policies."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def one(self, scope: str) -> StoredRetention | None:
        """Return the policy that is set on a model or a team itself."""
        row = self._session.scalar(
            select(SQLPolicy).where(SQLPolicy.scope == scope).execution_options(populate_existing=True)
        )
        if row is None:
            return None
        document = row.document
        return StoredRetention(
            row.scope,
            document.get("last"),
            document.get("pulled_within_days"),
            read_principal(row.by),
            stamp(row.at),
        )

    def effective(self, scope: str) -> StoredRetention | None:
        """Return the policy that holds for a model or a team: its own, else its team's."""
        return self.one(scope) or self.one(scope.partition("/")[0])

    def put(self, scope: str, document: dict[str, Any], by: Principal) -> None:
        """Set a policy."""
        values = {"scope": scope, "document": document, "by": encode(by), "at": func.clock_timestamp()}
        statement = insert(_POLICIES).values(values)
        changed = {name: statement.excluded[name] for name in ("document", "by", "at")}
        self._session.execute(statement.on_conflict_do_update(index_elements=["scope"], set_=changed))

    def remove(self, scope: str) -> None:
        """Remove a policy."""
        self._session.execute(delete(_POLICIES).where(_POLICIES.c.scope == scope))

    def models(self, scope: str) -> list[str]:
        """Return the names of a team's models, or of one model."""
        return list(self._session.scalars(_MODELS, {"scope": scope}))

    def governed(self) -> list[str]:
        """Return the names of all models for which a policy is set."""
        return list(self._session.scalars(_GOVERNED))

    def expired(
        self, model: str, policy: StoredRetention, *, limit: int, after: int = 0, pinned: bool = False
    ) -> list[int]:
        """Return the versions of a model that its policy does not keep, oldest first.

        Args:
            after: Only those with higher numbers.
            pinned: Those that an alias pins, which are kept, instead of the others.
        """
        return self._expired(model, policy, limit=limit, after=after, pinned=pinned)

    def is_expired(self, model: str, policy: StoredRetention, number: int) -> bool:
        """Return whether a version is not kept by a policy of its model."""
        return bool(self._expired(model, policy, limit=1, number=number))

    def record_pull(self, model: str, number: int) -> None:
        """Record that a version was pulled today."""
        self._session.execute(_PULLED, {"model": model, "number": number})

    def _expired(  # all by name
        self,
        model: str,
        policy: StoredRetention,
        *,
        limit: int,
        after: int = 0,
        number: int | None = None,
        pinned: bool = False,
    ) -> list[int]:
        if policy.last is None:
            return []
        given = {
            "model": model,
            "last": policy.last,
            "days": policy.pulled_within_days,
            "recorded_since": SETTING,
            "after": after,
            "number": number,
            "pinned": pinned,
            "most": limit,
        }
        return list(self._session.scalars(_EXPIRED, given))

    def newest_version(self) -> int:
        """Return the id of the version that was added last, 0 where there is none."""
        return int(self._session.execute(_NEWEST).scalar_one())

    def count_as_pulled(self, *, after: int) -> None:
        """Record that all versions that were added after one were pulled today: when they were pulled last was lost."""
        self._session.execute(_COUNT_AS_PULLED, {"after": after})
