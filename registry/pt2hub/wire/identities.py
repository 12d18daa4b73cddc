"""Whom a server takes the sender of a token for."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Identity:
    """The holder of a token.

    Attributes:
        name: The token's name; actions are recorded under it.
        admin: Whether the token has the scope `admin`, which includes all others.
        scopes: The kinds of action it allows, such as `publish`.
        patterns: The models for which it allows them, such as `vision/*`.
        expires_at: When it expires, ISO 8601, UTC; None for never.
        id: The token's number.
    """

    name: str
    admin: bool = False
    scopes: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ("*",)
    expires_at: str | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class MintedToken:
    """A token that was just created for the holder of an ID token.

    Attributes:
        token: The token; it is shown this once.
        name: Its name.
        admin: Whether it has the scope `admin`, which includes all others.
        scopes: The kinds of action it allows.
        patterns: The models for which it allows them.
        expires_at: When it expires, ISO 8601, UTC.
    """

    token: str = field(repr=False)
    name: str
    admin: bool
    scopes: tuple[str, ...]
    patterns: tuple[str, ...]
    expires_at: str
