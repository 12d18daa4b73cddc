"""The models that the current request may read, for lists, counts and suggestions.

`api.permissions` decides it once for each request and refuses requests about one model before their view; what is listed is
left out here. Outside of requests, as in workers and admin commands, everything may be read.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from pt2hub.domain.reading import EVERYTHING

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import InstrumentedAttribute

    from pt2hub.domain.reading import Readable

_READABLE: ContextVar[Readable] = ContextVar("readable", default=EVERYTHING)


def limit_reading(to: Readable) -> None:
    """Set the models that the current request, and thus this thread until the next one, may read."""
    _READABLE.set(to)


def readable() -> Readable:
    """Return the models that the current request may read."""
    return _READABLE.get()


def only_readable(
    name: InstrumentedAttribute[str] | InstrumentedAttribute[str | None],
) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for rows of models that may be read, by the column of their names."""
    limit = readable()
    return () if limit.everything else (name.regexp_match(limit.expression),)
