"""API tokens, by their SHA-256."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import func, or_, select, update

from pt2hub.server.db.schema import ApiToken as SQLApiToken

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_USED_LATELY = timedelta(minutes=1)
"""Last use is kept to the minute: a row rewritten by every request would be the busiest of the database."""


class TokenStore:
    """Tokens."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def add(self, name: str, sha256: str) -> None:
        """Adds a token."""
        self._session.add(SQLApiToken(name=name, sha256=sha256))

    def use(self, sha256: str) -> bool:
        """Notes the use of a token.

        Returns:
            Whether it is valid.
        """
        valid = (SQLApiToken.sha256 == sha256, SQLApiToken.revoked_at.is_(None))
        if self._session.execute(select(SQLApiToken.id).where(*valid)).first() is None:
            return False
        stale = or_(SQLApiToken.last_used_at.is_(None), SQLApiToken.last_used_at < func.now() - _USED_LATELY)
        self._session.execute(update(SQLApiToken).where(*valid, stale).values(last_used_at=func.now()))
        return True
