"""Filters, order and page of a model's versions in the address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from flask import request, url_for
from pydantic import BaseModel, ConfigDict

from pt2hub.domain.names import parse_alias
from pt2hub.server.pages.choices import check_choice
from pt2hub.server.pages.numbers import MAX_ID, MAX_VERSION, parse_whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

Order = Literal["", "speed"]
STATES = {"ready": "ready", "partial": "partly ready", "failed": "failed", "pending": "building"}
_HINT = "Versions are numbered from 1."
_MAX_LABEL = 600
"""Characters of a key with a value."""


class VersionListQuery(BaseModel):
    """Filters, order and page of a model's versions.

    Attributes:
        upto: Number of the first version shown, in the order of numbers.
        after: The cursor of the next page, where versions are filtered or sorted by speed.
        label: `KEY` or `KEY=VALUE`.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    sort: Order = ""
    state: str = ""
    alias: str = ""
    label: str = ""
    upto: int | None = None
    after: int | None = None

    @classmethod
    def read(cls, model: str) -> VersionListQuery:
        """Read the current request's query.

        Raises:
            InvalidInput: A number, the order or the state is invalid.
        """
        given = {name: request.args.get(name, "").strip() for name in ("sort", "state", "alias", "label")}
        check_choice(given["sort"], get_args(Order), "sort")
        check_choice(given["state"], ("", *STATES), "state")
        if given["alias"]:
            parse_alias(given["alias"])
        pages = {
            "upto": _number("upto", MAX_VERSION, "version number", _HINT),
            "after": _number("after", MAX_ID, "cursor", "Use the link to the next page."),
        }
        return cls.model_validate({**given, **pages, "model": model, "label": given["label"][:_MAX_LABEL]})

    @property
    def filters(self) -> dict[str, str]:
        """The filters in the query of the address."""
        given = {"state": self.state, "alias": self.alias, "label": self.label}
        return {name: value for name, value in given.items() if value}

    @property
    def is_first(self) -> bool:
        """Whether this is the first page."""
        return self.upto is None and self.after is None

    @property
    def is_plain(self) -> bool:
        """Whether these are the newest versions."""
        return self.is_first and not self.filters and not self.sort

    def next_href(self, cursor: int | None) -> str | None:
        """Return the address of the next page; None on the last one."""
        if cursor is None:
            return None
        return self.href(after=cursor) if self.filters or self.sort else self.href(upto=cursor - 1)

    def conditions(self) -> list[str]:
        """Return the filters as the catalog takes them."""
        return [f"model={self.model}", *self._filters()]

    def _filters(self) -> Iterator[str]:
        for name in ("state", "alias"):
            if value := getattr(self, name):
                yield f"{name}={value}"
        if self.label:
            yield f"label.{self.label}"

    def href(self, **changed: str | int | None) -> str:
        """Return the address of the list with other values; the page is left out unless it is given."""
        team, name = self.model.split("/")
        kept: dict[str, Any] = {**self.filters, "sort": self.sort, **changed}
        given = {name: value for name, value in kept.items() if value}
        return url_for("pages.model", team=team, name=name, **given) + "#versions"


def _number(where: str, most: int, what: str, hint: str) -> int | None:
    text = request.args.get(where, "").strip()
    return parse_whole_number(text, where, 1, most, what=what, hint=hint) if text else None
