"""Forms that move and remove aliases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import request

from pt2hub.errors import InvalidInput
from pt2hub.server.pages.numbers import MAX_VERSION, parse_whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.wire.responses import AliasView


@dataclass(frozen=True, slots=True)
class AliasForm:
    """A form that moves an alias.

    Attributes:
        force: Move even if the model's policy refuses it.
        seen: The version of each alias when the form was rendered: `prod=3`. Missing aliases did not exist.
    """

    alias: str = ""
    number: str = ""
    reason: str = ""
    force: bool = False
    seen: tuple[str, ...] = ()

    @classmethod
    def of(cls, aliases: Iterable[AliasView], *, alias: str = "", number: str = "") -> AliasForm:
        """Return an empty form that remembers the current aliases."""
        return cls(alias, number, seen=seen_of(aliases))

    @classmethod
    def from_request(cls, alias: str | None = None) -> AliasForm:
        """Return the form that the current request submits; a typed number wins over a chosen one.

        Args:
            alias: The alias, if the URL names it.
        """
        form = request.form
        return cls(
            alias=form.get("alias", "").strip() if alias is None else alias,
            number=form.get("number", "").strip() or form.get("choice", "").strip(),
            reason=form.get("reason", ""),
            force="force" in form,
            seen=tuple(form.getlist("seen")),
        )

    @property
    def expected(self) -> int | None:
        """The alias's version when the form was rendered, None if it did not exist.

        Raises:
            InvalidInput: The form was tampered with.
        """
        known = dict(item.partition("=")[::2] for item in self.seen)
        return _number(known[self.alias], "seen") if self.alias in known else None

    @property
    def to(self) -> int:
        """The version to move to.

        Raises:
            InvalidInput: The version is not a number.
        """
        return _number(self.number, "number")


def seen_of(aliases: Iterable[AliasView]) -> tuple[str, ...]:
    """Return the current versions of aliases for a form's hidden fields."""
    return tuple(f"{alias.name}={alias.number}" for alias in aliases if alias.number)


def _number(text: str, field: str) -> int:
    hint = "Enter the number of a version of this model, such as 3."
    if not text:
        raise InvalidInput("Version is required", where=field, hint=hint)
    return parse_whole_number(text, field, 1, MAX_VERSION, what="version number", hint=hint)
