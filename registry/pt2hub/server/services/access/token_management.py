"""Tokens that holders of tokens manage through the API: nobody gives, or takes from, more than they have."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.domain.tokens import EVERY_MODEL, Scope
from pt2hub.errors import Conflict, Forbidden, InvalidInput, NotFound
from pt2hub.server.db.stores.access.tokens import TokenStore
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.access.tokens import end_token
from pt2hub.wire.tokens import CreatedToken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.tokens import Actor, TokenInfo
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.access.tokens import AccessService

MAX_OVERLAP = timedelta(days=30)


class TokenManagementService:
    """Creation, rotation and revocation by the holders of other tokens."""

    def __init__(self, sessions: Sessions, access: AccessService) -> None:
        self._sessions = sessions
        self._access = access

    def create(
        self,
        name: str,
        *,
        scopes: Sequence[Scope],
        patterns: Sequence[str],
        lasting: timedelta | None,
        by: Actor,
    ) -> CreatedToken:
        """Create a token for models that the admin's own token covers.

        Raises:
            Forbidden: It would reach further than the admin's own token, in models or in time.
            InvalidInput: A field is malformed; see `AccessService.create`.
        """
        beyond = [pattern for pattern in patterns if not by.covers_all_of(pattern)]
        if beyond or not by.admin:
            raise Forbidden(
                f"Permission denied: a token for {beyond[0] if beyond else 'others'} reaches further than yours",
                where="models",
                hint=f"Yours is an admin token for {', '.join(by.patterns)}."
                if by.admin
                else "Creating needs an admin token.",
            )
        made = self._access.create(name, scopes=scopes, patterns=patterns, lasting=lasting, by=by)
        return CreatedToken(*made)

    def tokens(self, by: Actor) -> tuple[TokenInfo, ...]:
        """Return the tokens that an admin's token covers, and its own, oldest first."""
        return tuple(item for item in self._access.tokens() if _manages(by, item))

    def rotate(self, token_id: int, *, overlap: timedelta, by: Actor) -> CreatedToken:
        """Create a token like another one, which lasts on for a while so that its users can change to the new one.

        The new one expires as long after now as the old one did after its creation.

        Raises:
            InvalidInput: The overlap is negative, or longer than 30 days.
            NotFound: There is no such token for the actor.
            Conflict: It has ended.
        """
        if not timedelta() <= overlap <= MAX_OVERLAP:
            raise InvalidInput("Invalid overlap", where="overlap", hint=f"Use up to {MAX_OVERLAP.days} days.")
        with self._sessions.begin() as session:
            store = TokenStore(session)
            old = self._find(store, token_id, by)
            lasting = store.lifetime(token_id)
            if old.revoked_at or not store.end_within(token_id, overlap):
                raise Conflict(
                    f"The token {old.id} ({old.name}) has ended",
                    where="token",
                    hint="Create a new one: pt2hub token create",
                )
            secret, made = self._access.add(session, old.as_actor(), lasting=lasting, by=by)
            audit_log.record(
                session,
                by,
                Action.TOKEN_ROTATE,
                old.name,
                id=made.id,
                before=old.id,
                overlap_seconds=overlap.total_seconds(),
            )
        return CreatedToken(secret, made)

    def revoke(self, token_id: int, *, by: Actor) -> TokenInfo:
        """Revoke a token, at once and for good; idempotent.

        Raises:
            NotFound: There is no such token for the actor.
            Conflict: It is the last admin token for all models: nobody could undo what follows through the API.
        """
        with self._sessions.begin() as session:
            store = TokenStore(session)
            store.lock()  # two admins who revoke each other
            token = self._find(store, token_id, by)
            if _is_root(token) and store.is_valid(token_id) and store.count_roots() == 1:
                raise Conflict(
                    f"The token {token.id} ({token.name}) is the last admin token for all models",
                    where="token",
                    hint="Create another one first, or revoke it on the server's machine: pt2hub admin revoke",
                )
            return end_token(session, token_id, by=by)

    def _find(self, store: TokenStore, token_id: int, by: Actor) -> TokenInfo:
        """Return a token that the actor manages: its own, or one that its admin token covers."""
        found = store.one(token_id)
        if found is None or not _manages(by, found):
            raise NotFound(
                f"Token {token_id} not found",
                where="token",
                hint="pt2hub token ls lists those that you manage.",
            )
        return found


def _manages(by: Actor, token: TokenInfo) -> bool:
    return by.id == token.id or (by.admin and all(map(by.covers_all_of, token.patterns)))


def _is_root(token: TokenInfo) -> bool:
    return token.admin and EVERY_MODEL in token.patterns
