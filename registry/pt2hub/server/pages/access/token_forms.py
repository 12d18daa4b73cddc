"""The form that says what a token may do, for new tokens and for devices."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.tokens import Scope
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from werkzeug.datastructures import MultiDict

    from pt2hub.domain.tokens import Actor

LIFETIMES = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year"))
"""Days, and what the form calls them."""
DEFAULT_DAYS = 30


@dataclass(frozen=True, slots=True)
class TokenForm:
    """What was chosen, or what the form begins with."""

    name: str
    scopes: tuple[Scope, ...]
    models: str
    days: int
    service: bool = False

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of models."""
        return tuple(self.models.replace(",", " ").split())

    @property
    def lasting(self) -> timedelta:
        """Time until the token expires."""
        return timedelta(days=self.days)


def begin_form(by: Actor, name: str = "") -> TokenForm:
    """Return the form as it begins: all that the actor may do except administration."""
    scopes = tuple(scope for scope in Scope if by.may(scope) and scope is not Scope.ADMIN)
    return TokenForm(name, scopes, " ".join(by.patterns_for(Scope.READ)), DEFAULT_DAYS)


def read_form(form: MultiDict[str, str]) -> TokenForm:
    """Return what was chosen.

    Raises:
        InvalidInput: A scope or the lifetime is none that the form offers.
    """
    known = {str(scope): scope for scope in Scope}
    days = form.get("days", str(DEFAULT_DAYS))
    given = form.getlist("scope")
    if not set(given) <= known.keys() or days not in {str(number) for number, _ in LIFETIMES}:
        raise InvalidInput("Invalid form", where="scope", hint="Choose from what the form offers.")
    return TokenForm(
        form.get("name", "").strip(),
        tuple(known[name] for name in given),
        form.get("models", ""),
        int(days),
        form.get("kind") == "service",
    )
