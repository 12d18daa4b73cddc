"""What teams use, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.names import is_team
from pt2hub.errors import NotFound
from pt2hub.server.db.stores.operations.usage import UsageStore
from pt2hub.wire.usage import UsageView

if TYPE_CHECKING:
    from pt2hub.domain.limits import Limits
    from pt2hub.server.db.engine import Sessions


class UsageService:
    """Usage of teams."""

    def __init__(self, sessions: Sessions, limits: Limits) -> None:
        self._sessions = sessions
        self._limits = limits

    def view(self, team: str | None = None) -> UsageView:
        """Return the usage of all teams, or of one; models that the current request may not read are left out.

        Raises:
            NotFound: The team has no models.
        """
        with self._sessions.begin() as session:
            found = UsageStore(session).teams(team)
        if team is not None and not found:
            shown = repr(team[:80]) if not is_team(team) else team
            raise NotFound(
                f"Team {shown} not found", where="team", hint="pt2hub usage without a team lists all of them."
            )
        return UsageView(found, self._limits.builds_per_team, self._limits.bytes_per_team)
