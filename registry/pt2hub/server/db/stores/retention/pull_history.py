"""Since when pulls are recorded without a gap: what was pulled before, or in a gap, nobody knows.

A database that was rebuilt knows no pulls at all, one that was restored none since its backup, and while no server ran there
were none. After a jump of the clock all pulls look old. So the ages of pulls count only from here on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.orm import Session

_MAX_GAP_DAYS = 3
"""A server that is off over a weekend has no gap."""
SETTING = "pulls_recorded_since"
# `set_at` is when a server last ran. A database of an earlier release has recorded pulls since its oldest one at least.
_NOTE = text(f"""
    INSERT INTO server_settings AS own (name, value)
    SELECT '{SETTING}', CAST(least(
        now(), (SELECT min(pulled_on) FROM version_pulls), (SELECT min(started_at) FROM collections)) AS text)
    ON CONFLICT (name) DO UPDATE SET set_at = now(), value = CASE
        WHEN own.set_at < now() - make_interval(days => {_MAX_GAP_DAYS}) OR CAST(own.value AS timestamptz) > now()
        THEN CAST(now() AS text) ELSE own.value END""")  # noqa: S608  # of constants
_HELD_UNTIL = text(f"""
    SELECT since + make_interval(days => :days) FROM (
        SELECT CAST(value AS timestamptz) AS since FROM server_settings WHERE name = '{SETTING}') AS history
    WHERE since + make_interval(days => :days) >= now()""")  # noqa: S608  # as above


class PullHistory:
    """Since when pulls are recorded without a gap."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def note(self) -> None:
        """Note that a server runs and records pulls; where none did for some days, the history begins anew."""
        self._session.execute(_NOTE)

    def held_until(self, days: int) -> str | None:
        """Return when an age of so many days begins to count; None where it does so already."""
        until: datetime | None = self._session.scalar(_HELD_UNTIL, {"days": days})
        return stamp(until) if until else None
