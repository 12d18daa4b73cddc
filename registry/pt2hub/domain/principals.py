"""Principals: who did something, as recorded with what they did."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class PrincipalKind(StrEnum):
    """Kind of a principal. A name is unique within its kind at most, and not over time."""

    TOKEN = "token"  # noqa: S105  # a kind, no secret
    """The holder of an API token, also in a browser session that was opened with it."""
    PERSON = "person"
    """A person who signed in with the OpenID Connect provider, in a browser or with a token of theirs."""
    OPERATOR = "operator"
    """An account of the server's machine that runs `pt2hub admin` or `pt2hub up`."""
    OIDC = "oidc"
    """The subject of an OpenID Connect provider's token, with the provider."""
    SERVER = "server"
    """The server itself, where nobody asked for it."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who did something.

    Attributes:
        kind: A `PrincipalKind`, or one of a newer server.
        name: Name of the token or account at the time.
        id: What identifies it for good within its kind, such as a token's number; None where nothing does.
    """

    kind: str
    name: str
    id: str | None = None

    def __str__(self) -> str:
        """Return the name, with the kind unless it is a token or a person, or the name says it."""
        return (
            self.name
            if self.kind in {PrincipalKind.TOKEN, PrincipalKind.PERSON, self.name}
            else f"{self.name} ({self.kind})"
        )


def read_principal(value: Any) -> Principal | None:
    """Return a stored principal; None where none was recorded, or it is malformed."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    given = value.get("id")
    return Principal(str(value.get("kind")), value["name"], None if given is None else str(given))
