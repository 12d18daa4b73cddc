"""API tokens."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import TYPE_CHECKING

from pt2hub.errors import UNSEEN, Ambiguous, Forbidden, InvalidInput, NotFound, Unauthorized
from pt2hub.server.db.stores.tokens import TokenStore

if TYPE_CHECKING:
    from pt2hub.domain.tokens import Actor, TokenInfo
    from pt2hub.server.db.engine import Sessions

_RANDOM_BYTES = 32
_CHECK = 6
_MOST_NAME = 100
_TOKEN = re.compile(rf"(pt2_[a-z2-7]{{52}})_([a-z2-7]{{{_CHECK}}})")
_HINT = "pt2hub admin token makes a token; the client reads it from PT2HUB_TOKEN or config.toml."


class AccessService:
    """Tokens: who may change things."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions

    def create_token(self, name: str, *, admin: bool = False) -> str:
        """Makes a token.

        Args:
            name: What it is for, for people; alias moves are kept under it.
            admin: Whether it may force what a model's policy refuses.

        Returns:
            The token; only its SHA-256 is stored, so it is shown this once.

        Raises:
            InvalidInput: The name is empty, too long, or holds characters that cannot be seen.
        """
        if not name.strip() or len(name) > _MOST_NAME or name != name.translate(UNSEEN):
            raise InvalidInput(
                f"{name[:_MOST_NAME]!a} is no name for a token",
                where="name",
                hint=f"Say in 1 to {_MOST_NAME} characters what it is for, such as ci.",
            )
        body = f"pt2_{_base32(secrets.token_bytes(_RANDOM_BYTES))}"
        token = f"{body}_{_checksum(body)}"
        with self._sessions.begin() as session:
            TokenStore(session).add(name, _sha256(token), admin=admin)
        return token

    def verify(self, token: str) -> Actor:
        """Lets a token pass, or not.

        Returns:
            Who holds it: what is done with it is done in that name.

        Raises:
            Unauthorized: The token is no token of this server.
        """
        if not is_whole(token):
            raise Unauthorized("The token is missing or not whole", hint=_HINT)
        with self._sessions.begin() as session:
            actor = TokenStore(session).use(_sha256(token))
        if actor is None:
            raise Unauthorized("The token is not one of this server, or was revoked", hint=_HINT)
        return actor

    def tokens(self) -> tuple[TokenInfo, ...]:
        """Every token, the oldest first, revoked ones too."""
        with self._sessions.begin() as session:
            return TokenStore(session).all()

    def revoke(self, name_or_id: str) -> TokenInfo:
        """Revokes a token, at once and for good.

        Args:
            name_or_id: Its number, or its name where only one valid token has that name.

        Raises:
            NotFound: There is no such token, or none of that name is valid.
            Ambiguous: Several valid tokens have that name.
        """
        with self._sessions.begin() as session:
            store = TokenStore(session)
            return store.revoke(_chosen(store.all(), name_or_id).id)


def is_whole(token: str) -> bool:
    """Whether a token is as some server made it: its checksum answers typing errors without the database."""
    match = _TOKEN.fullmatch(token)
    return match is not None and secrets.compare_digest(_checksum(match[1]), match[2])


def check_admin(by: Actor, *, doing: str, where: str) -> None:
    """Lets only an admin's token pass.

    Args:
        by: Who asks.
        doing: What, as the end of a sentence.
        where: The field that asks for it.

    Raises:
        Forbidden: It is another one's.
    """
    if not by.admin:
        raise Forbidden(
            f'The token "{by.name}" is not of an admin: it may not {doing}',
            where=where,
            hint="Ask who runs the server: `pt2hub admin token --admin` makes an admin's.",
        )


def _chosen(tokens: tuple[TokenInfo, ...], name_or_id: str) -> TokenInfo:
    valid = [item for item in tokens if item.name == name_or_id and not item.revoked_at]
    found = [item for item in tokens if str(item.id) == name_or_id] or valid
    if len(found) > 1:
        ids = ", ".join(str(item.id) for item in found)
        raise Ambiguous(
            f"{len(found)} valid tokens are called {name_or_id[:80]!r}",
            where="token",
            hint=f"Name one by its id: {ids}. `pt2hub admin tokens` shows when each was last used.",
        )
    if not found:
        raise NotFound(
            f"There is no valid token {name_or_id[:80]!r}",
            where="token",
            hint="`pt2hub admin tokens` lists them.",
        )
    return found[0]


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _checksum(body: str) -> str:
    return _base32(hashlib.sha256(body.encode()).digest())[:_CHECK]


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
