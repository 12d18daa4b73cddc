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


@dataclass(frozen=True, slots=True)
class DeviceAuthorization:
    """A device's request for a token, which a person approves in a browser (RFC 8628, section 3.2).

    Attributes:
        device_code: What the device polls with.
        user_code: What the person types into the page.
        verification_uri: Address of the page.
        verification_uri_complete: The same, with the code filled in.
        expires_in: Seconds until the request ends.
        interval: Seconds to wait between two polls.
    """

    device_code: str = field(repr=False)
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int
