"""Tokens, as the API returns them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pt2hub.domain.people import RoleAssignment
from pt2hub.domain.tokens import TokenInfo


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A token that was just created.

    Attributes:
        token: The token; it is shown this once.
        info: What is known of it.
    """

    token: str = field(repr=False)
    info: TokenInfo


@dataclass(frozen=True, slots=True)
class TokenList:
    """The tokens that the sender manages.

    Attributes:
        tokens: Oldest first.
    """

    tokens: tuple[TokenInfo, ...]


@dataclass(frozen=True, slots=True)
class RoleList:
    """Roles of groups that the sender may see.

    Attributes:
        roles: By models and group.
    """

    roles: tuple[RoleAssignment, ...]
