"""Cursors of lists of builds: what the last build of a page is sorted by, which a retry changes, and its id."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildOrder
from pt2hub.server.services import cursors

if TYPE_CHECKING:
    from pt2hub.wire.responses import BuildView

_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_MICROSECONDS = re.compile(r"-?[0-9]{1,18}")


def encode(order: BuildOrder, last: BuildView) -> str:
    """Return the cursor after a build."""
    if order is BuildOrder.LONGEST:
        return f"{_duration(last) // timedelta(microseconds=1)},{last.id}"
    ended = last.finished_at if order is BuildOrder.ENDED else None
    return cursors.encode(ended or last.created_at, last.id)


def decode(order: BuildOrder, after: str) -> tuple[datetime | timedelta, str]:
    """Return what the last build of a page is sorted by, and its id.

    Raises:
        InvalidInput: It is not a cursor of such a list.
    """
    if order is not BuildOrder.LONGEST:
        return cursors.read(after, _ID, "builds")
    duration, _, build = after.partition(",")
    if not _MICROSECONDS.fullmatch(duration) or not _ID.fullmatch(build):
        raise cursors.invalid(after, "builds")
    return timedelta(microseconds=int(duration)), build


def _duration(build: BuildView) -> timedelta:
    if not build.started_at or not build.finished_at:
        return timedelta()
    return datetime.fromisoformat(build.finished_at) - datetime.fromisoformat(build.started_at)
