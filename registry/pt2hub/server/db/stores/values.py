"""Conversion between Python's and PostgreSQL's values."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from pt2hub.wire.resolution import Yank


def stamp(moment: datetime) -> str:
    """Format a time as ISO 8601 in UTC with Z, like every time in the API."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def optional_stamp(moment: datetime | None) -> str | None:
    """Format like `stamp`; None stays None."""
    return stamp(moment) if moment else None


def yank_of(document: dict[str, Any] | None) -> Yank | None:
    """Return the yank in a version's row; None stays None."""
    return Yank(document["reason"], document["by"], document["at"]) if document else None


def moment(text: str | None) -> datetime | None:
    """Parse an ISO 8601 time to UTC; return None where it is invalid.

    PostgreSQL supports fewer zones than Python: an offset of 20 hours would be a database error.
    """
    try:
        parsed = datetime.fromisoformat(text or "")
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def storable(value: Any) -> Any:
    """Return a JSON value that PostgreSQL accepts.

    It refuses NUL and lone surrogates, which compiler output may contain, and NaN, which the verification report of a
    wrong artifact may contain.
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
