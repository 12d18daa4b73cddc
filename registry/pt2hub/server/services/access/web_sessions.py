"""Browser sessions: a token, or a sign-in with the provider, is exchanged for a cookie."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.errors import DatabaseFull, DatabaseReadOnly
from pt2hub.server.db.stores.access.web_sessions import WebSessionStore

if TYPE_CHECKING:
    from pt2hub.domain.people import Person
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.access.tokens import AccessService

MAX_LIFETIME = timedelta(days=7)
MAX_PERSON_LIFETIME = timedelta(hours=12)
"""A person's groups are read when they sign in: what they lose at the provider, a browser loses after this time."""
MAX_IDLE = timedelta(hours=12)
_USE_RESOLUTION = timedelta(minutes=1)
_RANDOM_BYTES = 32


class WebSessionService:
    """Login sessions of browsers."""

    def __init__(self, sessions: Sessions, access: AccessService) -> None:
        self._sessions = sessions
        self._access = access

    def open(self, token: str) -> str:
        """Exchange a token for a session.

        Returns:
            The cookie's value; only its SHA-256 is stored.

        Raises:
            Unauthorized: The token is invalid.
        """
        whole = token.strip()
        self._access.verify(whole)
        value = secrets.token_urlsafe(_RANDOM_BYTES)
        with self._sessions.begin() as session:
            WebSessionStore(session).add(_sha256(value), _sha256(whole), lasting=MAX_LIFETIME)
        return value

    def open_for(self, person: Person) -> str:
        """Open a session of a person who just signed in; see `open`."""
        value = secrets.token_urlsafe(_RANDOM_BYTES)
        with self._sessions.begin() as session:
            WebSessionStore(session).add_person(_sha256(value), person.id, lasting=MAX_PERSON_LIFETIME)
        return value

    def actor(self, value: str) -> Actor | None:
        """Return the actor of a session cookie.

        Returns:
            The person, or the actor of its token; None where the session ended or the token was revoked.
        """
        sha256 = _sha256(value)
        try:
            with self._sessions.begin() as session:
                return WebSessionStore(session).use(sha256, idle=MAX_IDLE, stale=_USE_RESOLUTION)
        except (DatabaseFull, DatabaseReadOnly):  # its use cannot be recorded, but what it reads can be read
            with self._sessions.begin() as session:
                return WebSessionStore(session).use(sha256, idle=MAX_IDLE, stale=MAX_IDLE)

    def close(self, value: str) -> None:
        """End a session, if it exists."""
        with self._sessions.begin() as session:
            WebSessionStore(session).remove(_sha256(value))

    def sweep(self) -> None:
        """Remove ended sessions; a maintenance task."""
        with self._sessions.begin() as session:
            WebSessionStore(session).sweep(idle=MAX_IDLE)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
