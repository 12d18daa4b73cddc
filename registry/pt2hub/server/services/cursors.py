"""Pagination cursors of lists that are newest first: a time, and a key for rows of the same time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.errors import InvalidInput
from pt2hub.server.db.stores.values import moment

if TYPE_CHECKING:
    from datetime import datetime

_SEPARATOR = ","
_NUMBER = re.compile(r"[0-9]{1,18}")


def encode(at: str, row: object) -> str:
    """Return the cursor of a row, opaque to clients.

    Args:
        at: Time of the page's last row, ISO 8601.
    """
    return f"{at}{_SEPARATOR}{row}"


def read(after: str, row: re.Pattern[str], things: str) -> tuple[datetime, str]:
    """Decode a cursor.

    Raises:
        InvalidInput: It is not a cursor of such a list.
    """
    time, _, found = after.partition(_SEPARATOR)
    at = moment(time)
    if at is None or not row.fullmatch(found):
        raise invalid(after, things)
    return at, found


def invalid(after: str, things: str) -> InvalidInput:
    """Return the error about a cursor of another list."""
    return InvalidInput(
        f"Invalid cursor {after[:80]!a} in the list of {things}",
        where="after",
        hint="Use the value of `next` from the previous page, or omit it for the first page.",
    )


def decode_numbered(after: str, things: str) -> tuple[datetime, int]:
    """Decode the cursor of a list with numbered rows."""
    at, row = read(after, _NUMBER, things)
    return at, int(row)
