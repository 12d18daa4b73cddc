"""API tokens."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import TYPE_CHECKING

from pt2hub.errors import Unauthorized
from pt2hub.server.db.stores.tokens import TokenStore

if TYPE_CHECKING:
    from pt2hub.server.db.engine import Sessions

_RANDOM_BYTES = 32
_CHECK = 6
_TOKEN = re.compile(rf"(pt2_[a-z2-7]{{52}})_([a-z2-7]{{{_CHECK}}})")
_HINT = "pt2hub admin token makes a token; the client reads it from PT2HUB_TOKEN or config.toml."


class AccessService:
    """Tokens: who may change things."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions

    def create_token(self, name: str) -> str:
        """Makes a token.

        Args:
            name: What it is for, for people.

        Returns:
            The token; only its SHA-256 is stored, so it is shown this once.
        """
        body = f"pt2_{_base32(secrets.token_bytes(_RANDOM_BYTES))}"
        token = f"{body}_{_checksum(body)}"
        with self._sessions.begin() as session:
            TokenStore(session).add(name, _sha256(token))
        return token

    def verify(self, token: str) -> None:
        """Lets a token pass, or not.

        Raises:
            Unauthorized: The token is no token of this server.
        """
        # The checksum answers typing errors and cut-off copies without the database.
        match = _TOKEN.fullmatch(token)
        if not match or not secrets.compare_digest(_checksum(match[1]), match[2]):
            raise Unauthorized("The token is missing or not whole", hint=_HINT)
        with self._sessions.begin() as session:
            if not TokenStore(session).use(_sha256(token)):
                raise Unauthorized("The token is not one of this server, or was revoked", hint=_HINT)


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _checksum(body: str) -> str:
    return _base32(hashlib.sha256(body.encode()).digest())[:_CHECK]


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
