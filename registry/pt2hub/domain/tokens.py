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
PERSON_NAME = re.compile(r"[^\s:@]+@[^\s:@]+")
"""The name of a person, such as an address of theirs. Tokens are not named like this by trust rules."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Kinds of action, and the models for which they are allowed."""

    scopes: frozenset[Scope]
    patterns: tuple[str, ...]

    def allows(self, scope: Scope) -> bool:
        """Return whether it allows a kind of action, for its models."""
        return bool(self.scopes & {scope, Scope.ADMIN}) or (scope is Scope.READ and bool(self.scopes))

    def intersect(self, other: Permission) -> Permission:
        """Return what both allow."""
        scopes = frozenset(scope for scope in Scope if self.allows(scope) and other.allows(scope))
        pairs = ((one, two) for one in self.patterns for two in other.patterns)
        found = dict.fromkeys(intersect_patterns(one, two) for one, two in pairs)
        return Permission(scopes, tuple(pattern for pattern in found if pattern))


@dataclass(frozen=True, slots=True)
class Actor:
    """Who makes a request or runs a command, and what they may do.

    Attributes:
        name: The token's or account's name, or the person's; actions are recorded under it.
        admin: Whether the token has the scope `admin`, which includes all others; of a person, for any model.
        scopes: The kinds of action it allows; of a person, for any model.
        patterns: The models for which it allows them; of a person, those of any role.
        expires_at: When the token expires, ISO 8601, UTC; None for never.
        kind: What the name is of.
        id: The token's number; None without a token, such as in a browser session of a person.
        request: Id of the request, which the audit log names; None outside of one.
        person: The number of the person who acts, in a browser session or with a token of theirs.
        permissions: What a person may do: each role has models of its own.
    """

    name: str
    admin: bool = False
    scopes: frozenset[Scope] = DEFAULT_SCOPES
    patterns: tuple[str, ...] = (EVERY_MODEL,)
    expires_at: str | None = field(default=None, compare=False)
    kind: PrincipalKind = PrincipalKind.TOKEN
    id: int | None = field(default=None, compare=False)
    request: str | None = field(default=None, compare=False)
    person: int | None = field(default=None, compare=False)
    permissions: tuple[Permission, ...] = ()

    @property
    def principal(self) -> Principal:
        """Who this is, as recorded with what they do."""
        number = self.id if self.person is None else self.person
        return Principal(self.kind, self.name, None if number is None else str(number))

    @property
    def permission(self) -> Permission:
        """What a token that allows this allows, as one."""
        return Permission(self.scopes | ({Scope.ADMIN} if self.admin else set()), self.patterns)

    def may(self, scope: Scope, model: str | None = None) -> bool:
        """Return whether the actor may do a kind of action.

        Args:
            model: The model it is about, `team/name`; None for one that is about no model.
        """
        allowed = [each for each in self._all if each.allows(scope)]
        if model is None:
            return bool(allowed)
        return any(covers(pattern, model) for each in allowed for pattern in each.patterns)

    def patterns_for(self, scope: Scope) -> tuple[str, ...]:
        """Return the patterns of the models for which a kind of action is allowed."""
        allowed = (pattern for each in self._all if each.allows(scope) for pattern in each.patterns)
        return tuple(dict.fromkeys(allowed))

    def is_admin_of(self, pattern: str) -> bool:
        """Return whether this is an admin of all models that a pattern covers."""
        return any(within(pattern, own) for own in self.patterns_for(Scope.ADMIN))

    def may_give(self, wanted: Permission) -> bool:
        """Return whether the actor may do this itself: each kind of action for some of the models, and something for each.

        What a person's token allows for a model is what both it and their roles allow, so this need not hold for each pair.
        """
        pairs = {
            (scope, pattern)
            for scope in wanted.scopes
            for pattern in wanted.patterns
            if any(within(pattern, own) for own in self.patterns_for(scope))
        }
        return {scope for scope, _ in pairs} == wanted.scopes and {each for _, each in pairs} == {
            *wanted.patterns
        }

    @property
    def _all(self) -> tuple[Permission, ...]:
        return (self.permission,) if self.person is None else self.permissions


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
        owner: The person whose token it is, and who must be allowed what it allows; None for one of a service.
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
    owner: Principal | None = None

    def as_actor(self) -> Actor:
        """Return the actor that its holder is."""
        return Actor(self.name, self.admin, frozenset(map(Scope, self.scopes)), self.patterns)


def matches_name(pattern: str, name: str) -> bool:
    """Return whether a pattern matches the name of a token or a person; only `*` is special.

    A pattern without an @ was written for tokens. It matches no person, who may have some say in their own address.
    """
    if PERSON_NAME.fullmatch(name) and "@" not in pattern and pattern != EVERY_MODEL:
        return False
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


def matches_principal(pattern: str, by: Principal) -> bool:
    """Return whether a pattern matches who acts.

    One with an @ was written for people. It matches nobody else: tokens of services are named as their creators like.
    """
    return ("@" not in pattern or by.kind == PrincipalKind.PERSON) and matches_name(pattern, by.name)


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


def within(pattern: str, other: str) -> bool:
    """Return whether a pattern covers only models that another one covers."""
    return other == EVERY_MODEL or (pattern != EVERY_MODEL and covers(other, pattern))


def intersect_patterns(one: str, other: str) -> str | None:
    """Return the pattern of the models that both cover.

    Team and name are compared one by one. Parts that overlap without containing each other, such as `a*` and `*b`, have no
    pattern: then it is None, and so less is allowed rather than more.
    """
    if EVERY_MODEL in {one, other}:
        return other if one == EVERY_MODEL else one
    parts = []
    for ours, theirs in zip(one.split("/"), other.split("/"), strict=True):
        if fnmatchcase(ours, theirs):
            parts.append(ours)
        elif fnmatchcase(theirs, ours):
            parts.append(theirs)
        else:
            return None
    return "/".join(parts)
