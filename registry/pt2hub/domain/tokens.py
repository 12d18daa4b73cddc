"""API tokens and the actors that use them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    """The holder of a token who makes a request.

    Attributes:
        name: The token's name; actions are recorded under it.
        admin: Whether the token may change policies and force alias moves against failed promotion checks.
    """

    name: str
    admin: bool = False


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token without its secret.

    Attributes:
        name: Name given by its creator.
        created_at: ISO 8601, UTC.
        last_used_at: When it was last used, to the minute, or None.
        revoked_at: When it was revoked, or None.
        admin: Whether it may change policies and force alias moves against failed promotion checks.
    """

    id: int
    name: str
    created_at: str
    last_used_at: str | None = None
    revoked_at: str | None = None
    admin: bool = False
