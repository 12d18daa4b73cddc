"""API tokens, what they allow, and the actors that use them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pt2hub.domain.principals import Principal, PrincipalKind
from pt2hub.errors import Ambiguous, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable


class Scope(StrEnum):
    """A kind of action that a token allows; each includes reading."""

    READ = "read"
    PUBLISH = "publish"
    BUILD = "build"
    MEASURE = "measure"
    PROMOTE = "promote"
    ADMIN = "admin"
    """All of the others, and what a policy refuses: forced alias moves, and the policies themselves."""


DEFAULT_SCOPES = frozenset(Scope) - {Scope.ADMIN}
EVERY_MODEL = "*"
TOKEN = re.compile(r"(pt2_[a-z2-7]{52})_([a-z2-7]{6})")
"""A whole token: 32 random bytes, and a checksum over them."""
PATTERN = re.compile(r"\*|[a-z0-9*._-]+/[a-z0-9*._-]+")
"""All models, or a team's name and a model's, each with `*` for any characters: `vision/*`, `*/resnet18`."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who makes a request or runs a command, and what they may do.

    Attributes:
        name: The token's or account's name; actions are recorded under it.
        admin: Whether the token has the scope `admin`, which includes all others.
        scopes: The kinds of action it allows.
        patterns: The models for which it allows them.
        expires_at: When the token expires, ISO 8601, UTC; None for never.
        kind: What the name is of.
        id: The token's number.
        request: Id of the request, which the audit log names; None outside of one.
    """

    name: str
    admin: bool = False
    scopes: frozenset[Scope] = DEFAULT_SCOPES
    patterns: tuple[str, ...] = (EVERY_MODEL,)
    expires_at: str | None = field(default=None, compare=False)
    kind: PrincipalKind = PrincipalKind.TOKEN
    id: int | None = field(default=None, compare=False)
    request: str | None = field(default=None, compare=False)

    @property
    def principal(self) -> Principal:
        """Who this is, as recorded with what they do."""
        return Principal(self.kind, self.name, None if self.id is None else str(self.id))

    def may(self, scope: Scope, model: str | None = None) -> bool:
        """Return whether the token allows a kind of action.

        Args:
            model: The model it is about, `team/name`; None for one that is about no model.
        """
        if not (self.admin or scope in self.scopes or (scope is Scope.READ and self.scopes)):
            return False
        return model is None or any(covers(pattern, model) for pattern in self.patterns)

    def covers_all_of(self, pattern: str) -> bool:
        """Return whether the patterns cover all models of another pattern."""
        return EVERY_MODEL in self.patterns or any(
            pattern != EVERY_MODEL and covers(own, pattern) for own in self.patterns
        )

    def is_admin_of(self, pattern: str) -> bool:
        """Return whether this is an admin of all models that a pattern covers."""
        return self.admin and self.covers_all_of(pattern)


SERVER = Actor("server", kind=PrincipalKind.SERVER)
"""The server itself, where nobody asked for it."""


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token without its secret.

    Attributes:
        id: Its number, which no other token ever has.
        name: Name given by its creator.
        created_at: ISO 8601, UTC.
        last_used_at: When it was last used, to the minute, or None.
        revoked_at: When it was revoked, or None.
        admin: Whether it has the scope `admin`, which includes all others.
        scopes: The kinds of action it allows; a newer server may have others than `Scope`.
        patterns: The models for which it allows them.
        expires_at: When it expires, or None.
        created_by: Who created it; None if that was before it was recorded.
        revoked_by: Who revoked it, or None.
    """

    id: int
    name: str
    created_at: str
    last_used_at: str | None = None
    revoked_at: str | None = None
    admin: bool = False
    scopes: tuple[str, ...] = ()
    patterns: tuple[str, ...] = (EVERY_MODEL,)
    expires_at: str | None = None
    created_by: Principal | None = None
    revoked_by: Principal | None = None

    def as_actor(self) -> Actor:
        """Return the actor that its holder is."""
        return Actor(self.name, self.admin, frozenset(map(Scope, self.scopes)), self.patterns)


def matches_name(pattern: str, name: str) -> bool:
    """Return whether a pattern matches the name of a token; only `*` is special."""
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


def select_token(tokens: Iterable[TokenInfo], name_or_id: str, *, listed_by: str) -> TokenInfo:
    """Return the token with a number, or the only valid one with a name.

    Args:
        listed_by: The command that lists these tokens, for errors.

    Raises:
        Ambiguous: Several valid tokens have that name.
        NotFound: No token has that number, and no valid one that name.
    """
    known = list(tokens)
    valid = [item for item in known if item.name == name_or_id and not item.revoked_at]
    found = [item for item in known if str(item.id) == name_or_id] or valid
    if len(found) > 1:
        ids = ", ".join(str(item.id) for item in found)
        raise Ambiguous(
            f"{len(found)} valid tokens have the name {name_or_id[:80]!r}",
            where="token",
            hint=f"Use an id: {ids}. `{listed_by}` shows when each was last used.",
        )
    if not found:
        raise NotFound(
            f"No valid token named {name_or_id[:80]!r}",
            where="token",
            hint=f"`{listed_by}` lists the tokens.",
        )
    return found[0]


def covers(pattern: str, model: str) -> bool:
    """Return whether a pattern covers a model; `*` does not reach across the slash."""
    if pattern == EVERY_MODEL:
        return True
    parts = zip(model.split("/"), pattern.split("/"), strict=False)
    return model.count("/") == 1 and all(fnmatchcase(part, wanted) for part, wanted in parts)
