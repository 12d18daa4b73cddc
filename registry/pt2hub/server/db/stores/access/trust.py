"""Trust rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select

from pt2hub.domain.codec import encode
from pt2hub.domain.principals import read_principal
from pt2hub.domain.tokens import Scope
from pt2hub.domain.trust import TrustRule
from pt2hub.server.db.schema import TrustRule as SQLTrustRule
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal


class TrustStore:
    """Trust rules, in the order in which they apply."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, values: dict[str, Any], *, by: Principal) -> TrustRule:
        """Add a rule after all others."""
        statement = insert(SQLTrustRule).values(**values, created_by=encode(by)).returning(SQLTrustRule)
        return _rule(self._session.scalars(statement).one())

    def all(self) -> tuple[TrustRule, ...]:
        """Return the rules, oldest first."""
        return tuple(map(_rule, self._session.scalars(select(SQLTrustRule).order_by(SQLTrustRule.id))))

    def remove(self, rule_id: int) -> TrustRule | None:
        """Remove a rule; return it, None if there is none."""
        statement = delete(SQLTrustRule).where(SQLTrustRule.id == rule_id).returning(SQLTrustRule)
        found = self._session.scalars(statement).first()
        return _rule(found) if found else None


def _rule(row: SQLTrustRule) -> TrustRule:
    return TrustRule(
        id=row.id,
        name=row.name,
        issuer=row.issuer,
        audience=row.audience,
        claims=row.claims,
        scopes=tuple(map(Scope, row.scopes)),
        patterns=tuple(row.patterns),
        seconds=row.seconds,
        created_at=stamp(row.created_at),
        created_by=read_principal(row.created_by),
    )
