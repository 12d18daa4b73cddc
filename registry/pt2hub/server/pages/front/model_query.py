"""Filters, order and page of the list of models in the address."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from flask import request, url_for
from pydantic import BaseModel, ConfigDict

from pt2hub.domain.names import MAX_NAME, parse_model_name
from pt2hub.server.pages.choices import check_choice
from pt2hub.server.views.overview import AliasChoice, ModelFilter, Order

if TYPE_CHECKING:
    from typing import Any

ORDERS: dict[str, str] = {"change": "worst change", "recent": "newest", "name": "name"}
ALIASES: dict[str, str] = {"prod": "in production", "any": "with an alias", "none": "without an alias"}
_MAX_LABEL = 600
"""Characters of a key with a value."""


class ModelQuery(BaseModel):
    """Filters, order and page.

    Attributes:
        q: A part of the name.
        team: A team; on a team's own page it is in the path.
        after: Name of the previous page's last model.
        all: Whether everything that needs somebody is shown.
    """

    model_config = ConfigDict(frozen=True)

    q: str = ""
    team: str = ""
    alias: str = ""
    target: str = ""
    label: str = ""
    sort: str = ""
    after: str = ""
    all: str = ""
    of_team: bool = False

    @classmethod
    def read(cls, team: str = "") -> ModelQuery:
        """Read the current request's query.

        Args:
            team: The team in the path.
        """
        given = {name: _printable(value) for name, value in request.args.items() if name != "of_team"}
        if team:
            given["team"] = team
        after = request.args.get("after", "").strip()
        return cls.model_validate({**given, "after": after, "of_team": bool(team)})

    @property
    def filters(self) -> dict[str, str]:
        """The filters in the query of the address."""
        given = {"q": self.q, "alias": self.alias, "target": self.target, "label": self.label}
        if not self.of_team:
            given["team"] = self.team
        return {name: value for name, value in given.items() if value}

    @property
    def order(self) -> Order:
        """The order; the worst change first unless another one is chosen.

        Raises:
            InvalidInput: It is unknown.
        """
        order: Order = _one_of(get_args(Order), self.sort or "change", "sort")
        return order

    def to_filter(self) -> ModelFilter:
        """Return the filter.

        Raises:
            InvalidInput: A filter is invalid.
        """
        alias: AliasChoice = _one_of(get_args(AliasChoice), self.alias, "alias")
        return ModelFilter(self.q[:MAX_NAME].lower(), self.team, alias, self.target, self.label[:_MAX_LABEL])

    def place(self) -> str:
        """Return the name after which the page begins.

        Raises:
            InvalidInput: It is malformed.
        """
        return parse_model_name(self.after) if self.after else ""

    def href(self, **changed: str | None) -> str:
        """Return the address of the list with other values; `after` is left out unless it is given."""
        kept = {**self.filters, "sort": self.sort, "all": self.all, **changed}
        given: dict[str, Any] = {name: value for name, value in kept.items() if value}
        if self.of_team:
            return url_for("pages.team", team=self.team, **given)
        return url_for("pages.front", **given)


def _printable(typed: str) -> str:
    return "".join(letter for letter in typed if letter.isprintable()).strip()


def _one_of(known: tuple[Any, ...], given: str, where: str) -> Any:
    check_choice(given, known, where)
    return given
