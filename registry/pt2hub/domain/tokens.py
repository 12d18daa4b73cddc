"""API tokens, as an operator sees them, and who comes with one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks: whoever holds a token.

    Attributes:
        name: The token's name: what is done with it is done in that name.
        admin: Whether the token may change policies, and force what they refuse.
    """

    name: str
    admin: bool = False


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token without what would let it in.

    Attributes:
        id: Its number.
        name: What it is for, in the words of who made it.
        created_at: ISO 8601, UTC, as all times here.
        last_used_at: When it was last used, to the minute, or None.
        revoked_at: When it was revoked, or None.
        admin: Whether it is an admin's, which may change policies and force what they refuse.
    """

    id: int
    name: str
    created_at: str
    last_used_at: str | None = None
    revoked_at: str | None = None
    admin: bool = False
