"""Browser sessions, by the SHA-256 of their cookies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, or_, select, update

from pt2hub.server.db.schema import ApiToken as SQLApiToken
from pt2hub.server.db.schema import WebSession as SQLWebSession
from pt2hub.server.db.stores.access.tokens import TokenStore, actor_of, person_actor

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor


class WebSessionStore:
    """Browser sessions."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, sha256: str, token_sha256: str, *, lasting: timedelta) -> None:
        """Add a session for a valid token.

        Args:
            lasting: Maximum lifetime.
        """
        token = select(SQLApiToken.id).where(SQLApiToken.sha256 == token_sha256).scalar_subquery()
        values = {"sha256": sha256, "token_id": token, "expires_at": func.now() + lasting}
        self._session.execute(insert(SQLWebSession).values(values))

    def add_person(self, sha256: str, person_id: int, *, lasting: timedelta) -> None:
        """Add a session of a person.

        Args:
            lasting: Maximum lifetime.
        """
        values = {"sha256": sha256, "person_id": person_id, "expires_at": func.now() + lasting}
        self._session.execute(insert(SQLWebSession).values(values))

    def use(self, sha256: str, *, idle: timedelta, stale: timedelta) -> Actor | None:
        """Return the actor of a session, and record its use.

        Args:
            idle: Maximum time without use.
            stale: Interval at which the last use is recorded.

        Returns:
            The person, or the actor of the token; None where the session ended, or the token was revoked or expired.
        """
        now = func.now()
        row = self._session.execute(
            select(SQLApiToken, SQLWebSession.person_id, SQLWebSession.last_used_at < now - stale)
            .select_from(SQLWebSession)
            .outerjoin(SQLApiToken, SQLWebSession.token_id == SQLApiToken.id)
            .where(
                SQLWebSession.sha256 == sha256,
                SQLWebSession.expires_at > now,
                SQLWebSession.last_used_at > now - idle,
                SQLApiToken.revoked_at.is_(None),
                or_(SQLApiToken.expires_at.is_(None), SQLApiToken.expires_at > now),
            )
        ).first()
        if row is None:
            return None
        token, person, used_earlier = row
        if used_earlier:
            used = update(SQLWebSession).where(SQLWebSession.sha256 == sha256).values(last_used_at=now)
            self._session.execute(used)
        if token is None:
            return person_actor(self._session, person)
        found = TokenStore(self._session).use(token.sha256) if token.person_id is not None else None
        return (None if found.stale else found.actor) if found else actor_of(token)

    def remove(self, sha256: str) -> None:
        """End a session."""
        self._session.execute(delete(SQLWebSession).where(SQLWebSession.sha256 == sha256))

    def sweep(self, *, idle: timedelta) -> None:
        """Remove ended sessions."""
        now = func.now()
        ended = or_(SQLWebSession.expires_at <= now, SQLWebSession.last_used_at <= now - idle)
        self._session.execute(delete(SQLWebSession).where(ended))
