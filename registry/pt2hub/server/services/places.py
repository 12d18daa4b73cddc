"""The place in a list, newest first, that a page ended at: a time and what tells apart rows of one time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.errors import InvalidInput
from pt2hub.server.db.stores.values import moment

if TYPE_CHECKING:
    from datetime import datetime

_BETWEEN = ","
_NUMBER = re.compile(r"[0-9]{1,18}")


def told(at: str, row: object) -> str:
    """A place as pages tell it; its form may change.

    Args:
        at: Time of the page's last row, ISO 8601.
        row: What tells that row apart.
    """
    return f"{at}{_BETWEEN}{row}"


def read(after: str, row: re.Pattern[str], things: str) -> tuple[datetime, str]:
    """The place that a page told.

    Args:
        after: As it was told.
        row: What tells rows apart looks like this.
        things: What the list holds, in the plural.

    Raises:
        InvalidInput: No page tells such a place.
    """
    time, _, found = after.partition(_BETWEEN)
    at = moment(time)
    if at is None or not row.fullmatch(found):
        raise InvalidInput(
            f"{after[:80]!a} is no place in the list of {things}",
            where="after",
            hint="Give the value of `next` as the page before has it, or leave it out to begin with the newest.",
        )
    return at, found


def numbered(after: str, things: str) -> tuple[datetime, int]:
    """As `read`, where a number tells the rows apart."""
    at, row = read(after, _NUMBER, things)
    return at, int(row)
