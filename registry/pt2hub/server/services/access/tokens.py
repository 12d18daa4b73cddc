"""API tokens."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import TYPE_CHECKING

from pt2hub.errors import INVISIBLE_CHARACTERS, Ambiguous, Forbidden, InvalidInput, NotFound, Unauthorized
from pt2hub.server.db.stores.access.tokens import TokenStore

if TYPE_CHECKING:
    from pt2hub.domain.tokens import Actor, TokenInfo
    from pt2hub.server.db.engine import Sessions

_RANDOM_BYTES = 32
_CHECKSUM_CHARS = 6
_MAX_NAME_CHARS = 100
_TOKEN = re.compile(rf"(pt2_[a-z2-7]{{52}})_([a-z2-7]{{{_CHECKSUM_CHARS}}})")
_HINT = "Create a token with pt2hub admin token; the client reads it from PT2HUB_TOKEN or config.toml."


class AccessService:
    """Creation, verification and revocation of tokens."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def create_token(self, name: str, *, admin: bool = False) -> str:
        """Create a token.

        Returns:
            The token; only its SHA-256 is stored, so it is shown this once.

        Raises:
            InvalidInput: The name is empty, too long, or has invisible characters.
        """
        if not name.strip() or len(name) > _MAX_NAME_CHARS or name != name.translate(INVISIBLE_CHARACTERS):
            raise InvalidInput(
                f"Invalid token name {name[:_MAX_NAME_CHARS]!a}",
                where="name",
                hint=f"Name its use in 1 to {_MAX_NAME_CHARS} visible characters, such as ci.",
            )
        body = f"pt2_{_base32(secrets.token_bytes(_RANDOM_BYTES))}"
        token = f"{body}_{_checksum(body)}"
        with self._sessions.begin() as session:
            TokenStore(session).add(name, _sha256(token), admin=admin)
        return token

    def verify(self, token: str) -> Actor:
        """Verify a token.

        Returns:
            The actor: actions with the token are recorded under its name.

        Raises:
            Unauthorized: The token is invalid or was revoked.
        """
        if not is_whole(token):
            raise Unauthorized("The token is missing or malformed", hint=_HINT)
        with self._sessions.begin() as session:
            actor = TokenStore(session).use(_sha256(token))
        if actor is None:
            raise Unauthorized("The token is unknown to this server or was revoked", hint=_HINT)
        return actor

    def tokens(self) -> tuple[TokenInfo, ...]:
        """Return all tokens, oldest first, including revoked ones."""
        with self._sessions.begin() as session:
            return TokenStore(session).all()

    def revoke(self, name_or_id: str) -> TokenInfo:
        """Revoke a token, at once and for good.

        Args:
            name_or_id: Its number, or its name where only one valid token has that name.

        Raises:
            NotFound: The token does not exist, or no valid token has that name.
            Ambiguous: Several valid tokens have that name.
        """
        with self._sessions.begin() as session:
            store = TokenStore(session)
            return store.revoke(_chosen(store.all(), name_or_id).id)


def is_whole(token: str) -> bool:
    """Return whether a token is well-formed: its checksum catches typing errors without the database."""
    match = _TOKEN.fullmatch(token)
    return match is not None and secrets.compare_digest(_checksum(match[1]), match[2])


def check_admin(by: Actor, *, doing: str, where: str) -> None:
    """Require an admin's token.

    Raises:
        Forbidden: The actor is not an admin.
    """
    if not by.admin:
        raise Forbidden(
            f'Permission denied: the token "{by.name}" is not an admin token and cannot {doing}',
            where=where,
            hint="Ask the server's operator: `pt2hub admin token --admin` creates an admin token.",
        )


def _chosen(tokens: tuple[TokenInfo, ...], name_or_id: str) -> TokenInfo:
    valid = [item for item in tokens if item.name == name_or_id and not item.revoked_at]
    found = [item for item in tokens if str(item.id) == name_or_id] or valid
    if len(found) > 1:
        ids = ", ".join(str(item.id) for item in found)
        raise Ambiguous(
            f"{len(found)} valid tokens have the name {name_or_id[:80]!r}",
            where="token",
            hint=f"Use an id: {ids}. `pt2hub admin tokens` shows when each was last used.",
        )
    if not found:
        raise NotFound(
            f"No valid token named {name_or_id[:80]!r}",
            where="token",
            hint="`pt2hub admin tokens` lists the tokens.",
        )
    return found[0]


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _checksum(body: str) -> str:
    return _base32(hashlib.sha256(body.encode()).digest())[:_CHECKSUM_CHARS]


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
