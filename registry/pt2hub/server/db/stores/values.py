"""Between Python's values and PostgreSQL's."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any


def stamp(moment: datetime) -> str:
    """ISO 8601 in UTC with Z, as every time on the wire."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def optional_stamp(moment: datetime | None) -> str | None:
    """As `stamp`; None stays None."""
    return stamp(moment) if moment else None


def moment(text: str | None) -> datetime | None:
    """The time in UTC that an ISO 8601 text names, or None where it names none.

    PostgreSQL knows fewer zones than Python: what is 20 hours off UTC would be an error of the database.
    """
    try:
        parsed = datetime.fromisoformat(text or "")
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def storable(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """A JSON value that PostgreSQL takes.

    It refuses NUL and lone surrogates, which the output of compilers may hold, and NaN, which the report of a
    wrong artifact may.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    return value
