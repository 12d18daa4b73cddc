"""API tokens."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from datetime import timedelta
from shlex import quote
from typing import TYPE_CHECKING, TypedDict, Unpack

from pt2hub.domain.audit import Action
from pt2hub.domain.tokens import (
    DEFAULT_SCOPES,
    EVERY_MODEL,
    PATTERN,
    SERVER,
    TOKEN,
    Actor,
    Permission,
    Scope,
    select_token,
)
from pt2hub.errors import (
    INVISIBLE_CHARACTERS,
    DatabaseFull,
    DatabaseReadOnly,
    Forbidden,
    InvalidInput,
    SignInRequired,
    TokenExpired,
    TokenRevoked,
    Unauthorized,
)
from pt2hub.server.db.stores.access.tokens import GROUPS_BELIEVED, TokenStore
from pt2hub.server.services.access import audit_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import TokenInfo
    from pt2hub.server.db.engine import Sessions

_RANDOM_BYTES = 32
_CHECKSUM_CHARS = 6
_MAX_NAME_CHARS = 100
_RECENT_S = 0.5
_MAX_RECENT = 10_000
_LONGEST = timedelta(days=3650)
_HINT = "Create a token with pt2hub admin token on the server's machine; pt2hub login stores it, or set PT2HUB_TOKEN."


class Grant(TypedDict, total=False):
    """What a token allows; see `AccessService.create`."""

    admin: bool
    scopes: Iterable[Scope]
    patterns: Sequence[str]
    lasting: timedelta | None


class RecentActors:
    """Actors of tokens that were verified within `_RECENT_S`."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, Actor]] = {}

    def get(self, token: str) -> Actor | None:
        """Return the actor of a token; None if it was not verified lately."""
        until, actor = self._found.get(_sha256(token), (0.0, None))
        return actor if time.monotonic() < until else None

    def put(self, token: str, actor: Actor) -> None:
        """Remember a token that was just verified."""
        if len(self._found) >= _MAX_RECENT:
            self._found = {}
        self._found[_sha256(token)] = (time.monotonic() + _RECENT_S, actor)


class AccessService:
    """Creation, verification and revocation of tokens."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._recent = RecentActors()

    def create_token(self, name: str, *, by: Actor = SERVER, **grant: Unpack[Grant]) -> str:
        """Create a token; arguments and errors as for `create`, the token alone is returned."""
        return self.create(name, by=by, **grant)[0]

    def create(  # noqa: PLR0913  # a token has as many fields
        self,
        name: str,
        *,
        admin: bool = False,
        scopes: Iterable[Scope] = DEFAULT_SCOPES,
        patterns: Sequence[str] = (EVERY_MODEL,),
        lasting: timedelta | None = None,
        person: int | None = None,
        by: Actor = SERVER,
    ) -> tuple[str, TokenInfo]:
        """Create a token.

        Args:
            admin: Whether it has the scope `admin`, which includes all others.
            scopes: The kinds of action it allows.
            patterns: The models for which it allows them, such as `vision/*`.
            lasting: Time until it expires; None for never.
            person: The person whose token it is; None for one of a service.

        Returns:
            The token, of which only the SHA-256 is stored, so that it is shown this once; and what is known of it.

        Raises:
            InvalidInput: The name is empty, too long, or has invisible characters; there is no scope or pattern, or one is
                malformed; or the token would expire at once.
        """
        wanted = frozenset(scopes) | ({Scope.ADMIN} if admin else set())
        actor = check_token(name, Permission(wanted, tuple(patterns)), lasting)
        with self._sessions.begin() as session:
            return self.create_within(session, actor, lasting=lasting, person=person, by=by)

    def create_within(
        self, session: Session, actor: Actor, *, lasting: timedelta | None, person: int | None, by: Actor
    ) -> tuple[str, TokenInfo]:
        """Create a token in a transaction; see `create`, and `check_token` for the actor."""
        token, made = self.add(session, actor, lasting=lasting, person=person, by=by)
        audit_log.record(
            session,
            by,
            Action.TOKEN_CREATE,
            actor.name,
            id=made.id,
            admin=made.admin,
            scopes=made.scopes,
            patterns=made.patterns,
            expires_at=made.expires_at,
        )
        return token, made

    def add(
        self,
        session: Session,
        actor: Actor,
        *,
        lasting: timedelta | None,
        person: int | None = None,
        by: Actor,
    ) -> tuple[str, TokenInfo]:
        """Add a new token for an actor; the caller records it."""
        body = f"pt2_{_base32(secrets.token_bytes(_RANDOM_BYTES))}"
        token = f"{body}_{_checksum(body)}"
        return token, TokenStore(session).add(
            actor, _sha256(token), by=by.principal, lasting=lasting, person=person
        )

    def verify(self, token: str, *, recently: bool = False) -> Actor:
        """Verify a token.

        Args:
            recently: Whether a verification of the last half second counts: enough for reading, and a revocation still
                holds within a second in every process.

        Returns:
            The actor: actions with the token are recorded under its name.

        Raises:
            Unauthorized: The token is malformed or unknown.
            TokenRevoked: It was revoked.
            TokenExpired: It has expired.
            SignInRequired: It is of a person who signed in too long ago for their groups to be believed, or with a provider that
                is no longer this server's.
        """
        if not is_whole(token):
            raise Unauthorized("The token is missing or malformed", hint=_HINT)
        known = self._recent.get(token) if recently else None
        if known:
            return known
        try:
            with self._sessions.begin() as session:
                found = TokenStore(session).use(_sha256(token))
        except (DatabaseFull, DatabaseReadOnly):  # its use cannot be recorded, but what it reads can be read
            with self._sessions.begin() as session:
                found = TokenStore(session).use(_sha256(token), recorded=False)
        if found is None:
            raise Unauthorized("The token is unknown to this server", hint=_HINT)
        if found.revoked:
            raise TokenRevoked(f'The token "{found.actor.name}" was revoked', hint=_HINT)
        if found.expired:
            raise TokenExpired(
                f'The token "{found.actor.name}" expired on {found.actor.expires_at}', hint=_HINT
            )
        if found.stale:
            raise SignInRequired(
                f"The person whose token this is has not signed in with this server's provider for "
                f"{GROUPS_BELIEVED.days} days",
                hint="Sign in to the server's pages in a browser; the token then works again.",
            )
        self._recent.put(token, found.actor)
        return found.actor

    def tokens(self) -> tuple[TokenInfo, ...]:
        """Return all tokens, oldest first, including revoked ones."""
        with self._sessions.begin() as session:
            return TokenStore(session).all()

    def revoke(self, name_or_id: str, *, by: Actor = SERVER) -> TokenInfo:
        """Revoke a token, at once and for good.

        Args:
            name_or_id: Its number, or its name where only one valid token has that name.

        Raises:
            NotFound: The token does not exist, or no valid token has that name.
            Ambiguous: Several valid tokens have that name.
        """
        with self._sessions.begin() as session:
            store = TokenStore(session)
            chosen = select_token(store.all(), name_or_id, listed_by="pt2hub admin tokens")
            return end_token(session, chosen.id, by=by)


def end_token(session: Session, token_id: int, *, by: Actor) -> TokenInfo:
    """Revoke an existing token in a transaction, and record it unless it was revoked already."""
    revoked, changed = TokenStore(session).revoke(token_id, by=by.principal)
    if changed:
        audit_log.record(session, by, Action.TOKEN_REVOKE, revoked.name, id=revoked.id)
    return revoked


def is_whole(token: str) -> bool:
    """Return whether a token is well-formed: its checksum catches typing errors without the database."""
    match = TOKEN.fullmatch(token)
    return match is not None and secrets.compare_digest(_checksum(match[1]), match[2])


def check_admin(by: Actor, model: str, *, doing: str, where: str) -> None:
    """Require an admin's token for a model.

    Raises:
        Forbidden: The actor is not an admin of the model.
    """
    if not by.may(Scope.ADMIN, model):
        raise Forbidden(
            f"Permission denied: {describe(by)} is not an admin{' token for' if by.person is None else ' of'} {model} "
            f"and cannot {doing}",
            where=where,
            hint=f"Ask the server's operator for one: pt2hub admin token --name NAME --scope admin --models {quote(model)}",
        )


def describe(by: Actor) -> str:
    """Return who an actor is, for a sentence."""
    return f'the token "{by.name}"' if by.person is None else by.name


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of models, each once.

    Raises:
        InvalidInput: There is none, or one is malformed.
    """
    wrong = [pattern for pattern in patterns if not PATTERN.fullmatch(pattern)]
    if wrong or not patterns:
        raise InvalidInput(
            f"Invalid pattern of models {wrong[0][:_MAX_NAME_CHARS]!a}" if wrong else "No pattern of models",
            where="patterns",
            hint="Use * for all models, or a team and a name such as vision/*, */resnet18 or vision/resnet18.",
        )
    return tuple(dict.fromkeys(patterns))


def check_token(name: str, wanted: Permission, lasting: timedelta | None) -> Actor:
    """Return the actor that a token makes of its holder.

    Raises:
        InvalidInput: See `AccessService.create`.
    """
    if not name.strip() or len(name) > _MAX_NAME_CHARS or name != name.translate(INVISIBLE_CHARACTERS):
        raise InvalidInput(
            f"Invalid token name {name[:_MAX_NAME_CHARS]!a}",
            where="name",
            hint=f"Name its use in 1 to {_MAX_NAME_CHARS} visible characters, such as ci.",
        )
    patterns = check_patterns(wanted.patterns)
    if not wanted.scopes:
        raise InvalidInput(
            "The token would allow nothing", where="scopes", hint=f"Use some of {', '.join(Scope)}."
        )
    if lasting is not None and not timedelta() < lasting <= _LONGEST:
        raise InvalidInput(
            "Invalid lifetime of a token",
            where="lasting",
            hint=f"Use up to {_LONGEST.days} days, or leave it out for a token that does not expire.",
        )
    return Actor(name, Scope.ADMIN in wanted.scopes, wanted.scopes - {Scope.ADMIN}, patterns)


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _checksum(body: str) -> str:
    return _base32(hashlib.sha256(body.encode()).digest())[:_CHECKSUM_CHARS]


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
