"""Sessions of browsers: a token, exchanged for a cookie that means nothing elsewhere."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.server.db.stores.web_sessions import WebSessionStore

if TYPE_CHECKING:
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.access import AccessService

LASTING = timedelta(days=7)
"""How long a session may last in all."""
IDLE = timedelta(hours=12)
"""How long it may lie unused."""
_STALE = timedelta(minutes=1)
_RANDOM_BYTES = 32


class WebSessionService:
    """Browsers that signed in."""

    def __init__(self, sessions: Sessions, access: AccessService) -> None:
        """Is built by the container."""
        self._sessions = sessions
        self._access = access

    def open(self, token: str) -> str:
        """Exchanges a token for a session.

        Args:
            token: As it was typed; spaces around it do not count.

        Returns:
            The cookie's value; only its SHA-256 is stored.

        Raises:
            Unauthorized: The token is no valid one.
        """
        whole = token.strip()
        self._access.verify(whole)
        value = secrets.token_urlsafe(_RANDOM_BYTES)
        with self._sessions.begin() as session:
            WebSessionStore(session).add(_sha256(value), _sha256(whole), lasting=LASTING)
        return value

    def actor(self, value: str) -> Actor | None:
        """Who a cookie stands for.

        Args:
            value: The cookie's value.

        Returns:
            The holder of its token; None where the session ended, or the token was revoked.
        """
        with self._sessions.begin() as session:
            return WebSessionStore(session).use(_sha256(value), idle=IDLE, stale=_STALE)

    def close(self, value: str) -> None:
        """Ends a session, if it is one."""
        with self._sessions.begin() as session:
            WebSessionStore(session).remove(_sha256(value))

    def sweep(self) -> None:
        """Removes sessions that ended; `UpkeepService` calls it."""
        with self._sessions.begin() as session:
            WebSessionStore(session).sweep(idle=IDLE)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
