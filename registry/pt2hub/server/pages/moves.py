"""Forms that move aliases: what is typed into them, and what their pages knew when they were shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import request

from pt2hub.errors import InvalidInput
from pt2hub.server.pages.numbers import MOST_VERSION, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.wire.shapes import AliasView


@dataclass(frozen=True, slots=True)
class Moving:
    """A form that moves an alias.

    Attributes:
        alias: Its name.
        number: The version, as it was typed.
        reason: Why.
        force: Even where the model's policy refuses.
        seen: The version that each alias was on when the form was shown: `prod=3`. One that is missing did not exist.
    """

    alias: str = ""
    number: str = ""
    reason: str = ""
    force: bool = False
    seen: tuple[str, ...] = ()

    @classmethod
    def of(cls, aliases: Iterable[AliasView], *, alias: str = "", number: str = "") -> Moving:
        """An empty form, about aliases as they are now."""
        return cls(alias, number, seen=seen_of(aliases))

    @classmethod
    def sent(cls, alias: str | None = None) -> Moving:
        """The form as this request sent it.

        Args:
            alias: The alias's name where the address has it.
        """
        form = request.form
        return cls(
            alias=form.get("alias", "").strip() if alias is None else alias,
            number=form.get("number", "").strip(),
            reason=form.get("reason", ""),
            force="force" in form,
            seen=tuple(form.getlist("seen")),
        )

    @property
    def expected(self) -> int | None:
        """The version that the alias was on when the form was shown, None where there was no such alias.

        Raises:
            InvalidInput: The form was changed by somebody.
        """
        known = dict(item.partition("=")[::2] for item in self.seen)
        return _number(known[self.alias], "seen") if self.alias in known else None

    @property
    def to(self) -> int:
        """The version to move to.

        Raises:
            InvalidInput: What was typed is no number.
        """
        return _number(self.number, "number")


def seen_of(aliases: Iterable[AliasView]) -> tuple[str, ...]:
    """Where aliases are now, as forms carry it."""
    return tuple(f"{alias.name}={alias.number}" for alias in aliases if alias.number)


def _number(text: str, field: str) -> int:
    hint = "Write the number of a version of this model, such as 3."
    if not text:
        raise InvalidInput("The version's number is missing", where=field, hint=hint)
    return whole(text, field, 1, MOST_VERSION, what="number of a version", hint=hint)
