"""People who sign in with an OpenID Connect provider, and the roles that their groups have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pt2hub.domain.principals import Principal, PrincipalKind
from pt2hub.domain.tokens import DEFAULT_SCOPES, Actor, Permission, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Role(StrEnum):
    """A named bundle of scopes, which a group of the provider has on some models."""

    READER = "reader"
    PUBLISHER = "publisher"
    PROMOTER = "promoter"
    MAINTAINER = "maintainer"
    ADMIN = "admin"


ROLE_SCOPES: dict[Role, frozenset[Scope]] = {
    Role.READER: frozenset({Scope.READ}),
    Role.PUBLISHER: frozenset({Scope.READ, Scope.PUBLISH, Scope.BUILD, Scope.MEASURE}),
    Role.PROMOTER: frozenset({Scope.READ, Scope.PROMOTE}),
    Role.MAINTAINER: DEFAULT_SCOPES,
    Role.ADMIN: frozenset({Scope.ADMIN}),
}
"""What each role allows. `docs/how-to/sign-in.md` has the same table."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who signed in.

    Attributes:
        id: Their number, which no other person ever has.
        issuer: The provider.
        subject: What the provider calls them for good.
        name: What records call them: an address of theirs, with an @.
        full_name: As the provider spells it; empty if it does not say.
        email: Empty if the provider does not say.
        groups: As of the last sign-in.
        signed_in_at: When they last signed in, ISO 8601, UTC.
    """

    id: int
    issuer: str
    subject: str
    name: str
    full_name: str
    email: str
    groups: tuple[str, ...]
    signed_in_at: str

    @property
    def principal(self) -> Principal:
        """Who this is, as recorded with what they do."""
        return Principal(PrincipalKind.PERSON, self.name, str(self.id))


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """A role that a group of the provider has on some models.

    Attributes:
        id: Its number.
        group: The group, exactly as the provider spells it.
        role: The role.
        pattern: The models, such as `vision/*`.
        created_at: ISO 8601, UTC.
        created_by: Who added it.
    """

    id: int
    group: str
    role: Role
    pattern: str
    created_at: str
    created_by: Principal | None = None

    @property
    def permission(self) -> Permission:
        """What it allows."""
        return Permission(ROLE_SCOPES[self.role], (self.pattern,))


@dataclass(frozen=True, slots=True)
class OwnToken:
    """A token of a person, for the actor that it makes of its holder.

    Attributes:
        id: Its number.
        permission: What it allows, as far as the person's roles do.
        expires_at: When it expires.
    """

    id: int
    permission: Permission
    expires_at: str | None


def actor_of(person: Person, roles: Iterable[RoleAssignment], token: OwnToken | None = None) -> Actor:
    """Return a person as an actor, with what their roles allow, or what of it a token of theirs allows."""
    given: Sequence[Permission] = [role.permission for role in roles]
    if token:
        given = [
            both for each in given if (both := each.intersect(token.permission)).patterns and both.scopes
        ]
    scopes = frozenset(scope for each in given for scope in each.scopes)
    return Actor(
        person.name,
        admin=Scope.ADMIN in scopes,
        scopes=scopes - {Scope.ADMIN},
        patterns=tuple(dict.fromkeys(pattern for each in given for pattern in each.patterns)),
        expires_at=token.expires_at if token else None,
        kind=PrincipalKind.PERSON,
        id=token.id if token else None,
        person=person.id,
        permissions=tuple(given),
    )


class DeviceState(StrEnum):
    """How far a device's request is."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A device that asks for a token (RFC 8628), before it got one.

    Attributes:
        user_code: What the person types, such as `WDJB-MJHT`.
        client: What the device says of itself, such as `pt2hub on laptop`.
        state: A `DeviceState`.
        created_at: When it asked, ISO 8601, UTC.
    """

    user_code: str
    client: str
    state: DeviceState
    created_at: str
