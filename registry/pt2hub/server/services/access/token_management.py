"""Tokens that holders of tokens manage through the API: nobody gives, or takes from, more than they have."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.domain.principals import PrincipalKind
from pt2hub.domain.tokens import EVERY_MODEL, Permission, Scope
from pt2hub.errors import Conflict, Forbidden, InvalidInput, NotFound
from pt2hub.server.db.stores.access.tokens import TokenStore
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.access.roots import check_root_remains, lock_roots
from pt2hub.server.services.access.tokens import check_patterns, check_token, end_token
from pt2hub.wire.tokens import CreatedToken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.tokens import Actor, TokenInfo
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.access.tokens import AccessService

MAX_OVERLAP = timedelta(days=30)
DEFAULT_OVERLAP = timedelta(days=1)
MAX_OWN = timedelta(days=365)
"""Lifetime of a person's token. It waits anyway if they do not sign in; see `GROUPS_BELIEVED`."""


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
        """Create a token of a service, for models of which the actor is an admin.

        Raises:
            Forbidden: It would reach further than the admin does, in models.
            Conflict: A valid token of this name exists: records could not tell the two apart.
            InvalidInput: A field is malformed; see `AccessService.create`.
        """
        beyond = [pattern for pattern in patterns if not by.is_admin_of(pattern)]
        if beyond or not by.admin:
            raise Forbidden(
                f"Permission denied: a token for {beyond[0] if beyond else 'others'} reaches further than yours",
                where="models",
                hint=f"You are an admin of {', '.join(by.patterns_for(Scope.ADMIN))}."
                if by.admin
                else "Creating tokens of services needs an admin. Your own tokens: sign in, and open the page Tokens.",
            )
        actor = check_token(name, Permission(frozenset(scopes), tuple(patterns)), lasting)
        with self._sessions.begin() as session:
            _claim_name(TokenStore(session), name, by)
            made = self._access.create_within(session, actor, lasting=lasting, person=None, by=by)
        return CreatedToken(*made)

    def create_own(
        self,
        name: str,
        *,
        scopes: Sequence[Scope],
        patterns: Sequence[str],
        lasting: timedelta,
        by: Actor,
    ) -> CreatedToken:
        """Create a token of the person who is signed in. It never allows more than they may do, now or later.

        Raises:
            Forbidden: It would reach further than the person's roles, or the actor is not a person in a browser: a token
                that leaked must not make others.
            InvalidInput: A field is malformed; see `AccessService.create`.
        """
        check_own(by, Permission(frozenset(scopes), tuple(patterns)), lasting)
        made = self._access.create(
            name, scopes=scopes, patterns=patterns, lasting=lasting, person=by.person, by=by
        )
        return CreatedToken(*made)

    def tokens(self, by: Actor) -> tuple[TokenInfo, ...]:
        """Return the actor's own tokens, and those for models of which they are an admin, oldest first."""
        return tuple(item for item in self._access.tokens() if _manages(by, item))

    def rotate(self, token_id: int, *, overlap: timedelta, by: Actor) -> CreatedToken:
        """Create a token like another one, which lasts on for a while so that its users can change to the new one.

        The new one expires as long after now as the old one did after its creation.

        Raises:
            InvalidInput: The overlap is negative, or longer than 30 days.
            NotFound: There is no such token for the actor.
            Forbidden: It is of a person, and the actor is not that person in a browser; or it was exchanged for an ID token.
            Conflict: It has ended.
        """
        if not timedelta() <= overlap <= MAX_OVERLAP:
            raise InvalidInput("Invalid overlap", where="overlap", hint=f"Use up to {MAX_OVERLAP.days} days.")
        with self._sessions.begin() as session:
            store = TokenStore(session)
            old = self._find(store, token_id, by)
            _check_rotation(old, by)
            lasting = store.lifetime(token_id)
            if old.revoked_at or not store.end_within(token_id, overlap):
                raise Conflict(
                    f"The token {old.id} ({old.name}) has ended",
                    where="token",
                    hint="Create a new one: pt2hub token create",
                )
            person = int(old.owner.id) if old.owner and old.owner.id else None
            secret, made = self._access.add(session, old.as_actor(), lasting=lasting, person=person, by=by)
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
            lock_roots(session)
            store = TokenStore(session)
            token = self._find(store, token_id, by)
            was_root = _is_root(token) and store.is_valid(token_id)
            ended = end_token(session, token_id, by=by)
            if was_root:
                check_root_remains(session, f"The token {token.id} ({token.name})")
            return ended

    def _find(self, store: TokenStore, token_id: int, by: Actor) -> TokenInfo:
        """Return a token that the actor manages: its own, or one for models of which it is an admin."""
        found = store.one(token_id)
        if found is None or not _manages(by, found):
            raise NotFound(
                f"Token {token_id} not found",
                where="token",
                hint="pt2hub token ls lists those that you manage.",
            )
        return found


def check_person(by: Actor) -> None:
    """Require a person who is signed in in a browser.

    Raises:
        Forbidden: The actor is a token, also one of a person's.
    """
    if by.person is None or by.id is not None:
        raise Forbidden(
            "Permission denied: only people who are signed in with the provider have tokens of their own",
            where="token",
            hint="Sign out, and sign in with the provider in a browser.",
        )


def check_own(by: Actor, wanted: Permission, lasting: timedelta) -> None:
    """Require that a person who is signed in in a browser may do what they want to give to a token of their own.

    Raises:
        Forbidden: It reaches further than their roles, or the actor is somebody else: a token that leaked must not make
            others.
        InvalidInput: It would last too long, or a pattern is malformed.
    """
    check_person(by)
    check_patterns(wanted.patterns)
    if not by.may_give(wanted):
        raise Forbidden(
            f"Permission denied: your roles do not allow {', '.join(sorted(wanted.scopes)) or 'anything'} of "
            f"{', '.join(wanted.patterns)}",
            where="scopes",
            hint="The page Teams shows your roles. Choose fewer scopes, or models that your roles cover.",
        )
    if lasting > MAX_OWN:
        raise InvalidInput(
            "Invalid lifetime of a token",
            where="lasting",
            hint=f"Tokens of people last at most {MAX_OWN.days} days; ask an admin for one of a service.",
        )


def _check_rotation(old: TokenInfo, by: Actor) -> None:
    """Require that a token may have a successor: one that leaked must not outlive itself.

    Raises:
        Forbidden: See `TokenManagementService.rotate`.
    """
    if old.owner and not (by.id is None and _is_own(by, old)):
        raise Forbidden(
            f"Permission denied: the token {old.id} ({old.name}) is of {old.owner.name}, and only they replace it, in a browser",
            where="token",
            hint="Sign in with the provider, and open the page Tokens. To end the token: pt2hub token revoke",
        )
    if old.created_by and old.created_by.kind == PrincipalKind.OIDC:
        raise Forbidden(
            f"Permission denied: the token {old.id} ({old.name}) is short-lived and cannot be replaced",
            where="token",
            hint="It was exchanged for an ID token of a job; exchange another one: pt2hub login --ci",
        )


def _is_own(by: Actor, token: TokenInfo) -> bool:
    """Return whether a token is the actor's: the one in use, or any of the person who is signed in in a browser."""
    if by.id is not None or by.person is None:
        return by.id == token.id
    return token.owner is not None and token.owner.id == str(by.person)


def _claim_name(store: TokenStore, name: str, by: Actor) -> None:
    """Refuse the name of another valid token of a service, of those that the actor may know of; hold up others meanwhile."""
    store.lock()
    same = [item for item in store.all() if item.name == name and not item.owner and _manages(by, item)]
    taken = next((item for item in same if store.is_valid(item.id)), None)
    if taken:
        raise Conflict(
            f"Token {name} already exists (id {taken.id})",
            where="name",
            hint=f"Choose another name. To replace its secret: pt2hub token rotate {taken.id}; to end it: "
            f"pt2hub token revoke {taken.id}",
        )


def _manages(by: Actor, token: TokenInfo) -> bool:
    return _is_own(by, token) or all(map(by.is_admin_of, token.patterns))


def _is_root(token: TokenInfo) -> bool:
    return token.admin and EVERY_MODEL in token.patterns and token.owner is None
