"""Source positions for the server's errors about a spec or a policy file, which name fields only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.errors import UsageError
from pt2hub.wire.positions import find_positions

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.errors import Pt2hubError

_DOCUMENT = "document"
"""The location that `wire.documents` gives a file that is not well-formed."""
_WHOLE = frozenset({"spec", "policy"})
"""Locations that the services give a whole document."""


def in_file(error: Pt2hubError, path: Path) -> Pt2hubError:
    """Return an error about a document with the file, line and column of each wrong field.

    Args:
        error: Returned unchanged if it is about something else, such as the token.
    """
    where = error.where or ""
    if not isinstance(error, UsageError) or str(path) in where:
        return error
    if where.startswith(_DOCUMENT):
        return error.replace(where=str(path) + where.removeprefix(_DOCUMENT))
    try:
        positions = find_positions(path.read_bytes(), [where, *(item.path for item in error.details)])
    except OSError:
        positions = {}
    lines = {field: f"line {number}, column {column}: " for field, (number, column) in positions.items()}
    line = lines.get(where, "")
    if not (line or error.details or where in _WHOLE):
        return error
    details = error.details
    if len(details) > 1:  # the position of a single one is in the first line
        details = tuple(replace(item, message=lines.get(item.path, "") + item.message) for item in details)
    named = f"{path}, {line}{where}" if line else str(path) if where in _WHOLE else f"{path}: {where}"
    return error.replace(where=named, details=details)
