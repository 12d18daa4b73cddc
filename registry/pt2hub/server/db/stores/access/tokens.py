"""API tokens, by their SHA-256."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import func, or_, select, update

from pt2hub.domain.tokens import Actor, TokenInfo
from pt2hub.server.db.schema import ApiToken as SQLApiToken
from pt2hub.server.db.stores.values import optional_stamp, stamp

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_USE_RESOLUTION = timedelta(minutes=1)
"""Last use is recorded once a minute: writing it with every request would make it the busiest row of the database."""


class TokenStore:
    """API tokens."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, name: str, sha256: str, *, admin: bool = False) -> None:
        """Add a token."""
        self._session.add(SQLApiToken(name=name, sha256=sha256, admin=admin))

    def use(self, sha256: str) -> Actor | None:
        """Record the use of a token.

        Returns:
            Its actor, None where it is not valid.
        """
        valid = (SQLApiToken.sha256 == sha256, SQLApiToken.revoked_at.is_(None))
        found = self._session.execute(select(SQLApiToken.name, SQLApiToken.admin).where(*valid)).first()
        if found is None:
            return None
        stale = or_(
            SQLApiToken.last_used_at.is_(None), SQLApiToken.last_used_at < func.now() - _USE_RESOLUTION
        )
        self._session.execute(update(SQLApiToken).where(*valid, stale).values(last_used_at=func.now()))
        return Actor(found.name, found.admin)

    def all(self) -> tuple[TokenInfo, ...]:
        """Return all tokens, oldest first, including revoked ones."""
        rows = self._session.scalars(select(SQLApiToken).order_by(SQLApiToken.id))
        return tuple(_info(row) for row in rows)

    def revoke(self, token_id: int) -> TokenInfo:
        """Revoke an existing token; one that is already revoked keeps its time."""
        valid = (SQLApiToken.id == token_id, SQLApiToken.revoked_at.is_(None))
        self._session.execute(update(SQLApiToken).where(*valid).values(revoked_at=func.now()))
        return _info(self._session.get_one(SQLApiToken, token_id, populate_existing=True))


def _info(row: SQLApiToken) -> TokenInfo:
    return TokenInfo(
        id=row.id,
        name=row.name,
        created_at=stamp(row.created_at),
        last_used_at=optional_stamp(row.last_used_at),
        revoked_at=optional_stamp(row.revoked_at),
        admin=row.admin,
    )
