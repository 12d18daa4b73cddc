"""Filter and order of the list of tokens in the address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request, url_for
from pydantic import BaseModel, ConfigDict

from pt2hub.server.pages.choices import check_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pt2hub.domain.tokens import TokenInfo

_LAST = "9999"
"""Sorts after every time."""
_ORDERS: dict[str, tuple[Callable[[TokenInfo], str], bool]] = {
    "name": (lambda item: item.name.lower(), False),
    "used": (lambda item: item.last_used_at or "", True),
    "expires": (lambda item: item.expires_at or _LAST, False),
}
"""Order by name: the key, and whether the largest comes first."""


class TokenListQuery(BaseModel):
    """Filter and order.

    Attributes:
        q: A part of the name of a token or of its owner.
        sort: An order; empty for the oldest first.
    """

    model_config = ConfigDict(frozen=True)

    q: str = ""
    sort: str = ""

    @classmethod
    def read(cls) -> TokenListQuery:
        """Read the current request's query.

        Raises:
            InvalidInput: The order is unknown.
        """
        query = cls(q=request.args.get("q", "").strip(), sort=request.args.get("sort", ""))
        check_choice(query.sort, ("", *_ORDERS), "sort")
        return query

    def select(self, tokens: Iterable[TokenInfo]) -> list[TokenInfo]:
        """Return the tokens that match, in order."""
        part = self.q.lower()
        found = [
            item
            for item in tokens
            if part in item.name.lower() or (item.owner and part in item.owner.name.lower())
        ]
        if not self.sort:
            return found
        key, largest_first = _ORDERS[self.sort]
        return sorted(found, key=key, reverse=largest_first)

    def direction(self, sort: str) -> str | None:
        """Return the direction in which the list is sorted by an order; None if it is not."""
        if sort != self.sort:
            return None
        return "descending" if _ORDERS[sort][1] else "ascending"

    def href(self, sort: str) -> str:
        """Return the address of the list in another order."""
        return url_for("pages.tokens", q=self.q or None, sort=sort)
