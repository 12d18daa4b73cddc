"""Whom a server takes the sender of a token for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """The holder of a token.

    Attributes:
        name: The token's name; actions are recorded under it.
        admin: Whether the token may change policies and force alias moves against failed promotion checks.
    """

    name: str
    admin: bool = False
