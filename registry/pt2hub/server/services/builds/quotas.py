"""Limits of what a team may build and store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.names import team_of
from pt2hub.errors import QuotaExceeded
from pt2hub.rendering.quantities import format_bytes
from pt2hub.server.db.stores.operations.usage import UsageStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.limits import Limits

_WHO = "The operator of the server sets the limit."


class TeamQuotas:
    """Compares a team's usage with its limits, in the caller's transaction.

    Only what people request is compared: what a build has begun, it finishes.
    """

    def __init__(self, session: Session, limits: Limits) -> None:
        self._store = UsageStore(session)
        self._limits = limits

    def lock(self, model: str) -> None:
        """Lock the team of a model, before anything else is locked: two requests must not both take the last place."""
        if self._limits.builds_per_team:
            self._store.lock(team_of(model))

    def check_builds(self, model: str, adding: int) -> None:
        """Refuse more builds than a team may have queued and running.

        Args:
            adding: Number of builds to add; those that exist already are not asked about.

        Raises:
            QuotaExceeded: They are too many.
        """
        most, team = self._limits.builds_per_team, team_of(model)
        if not most or not adding or (there := self._store.builds(team)) + adding <= most:
            return
        raise QuotaExceeded(
            f"Team {team} has {there} queued and running builds, and {adding} more would exceed its limit of {most}",
            where="builds",
            hint=f"Wait until some end, or cancel some: pt2hub builds --state queued, pt2hub cancel ID. {_WHO}",
            context={"team": team, "used": there, "limit": most},
        )

    def check_bytes(self, model: str) -> None:
        """Refuse a new version of a team whose stored blobs have reached its limit.

        Raises:
            QuotaExceeded: They have.
        """
        most, team = self._limits.bytes_per_team, team_of(model)
        if not most or (there := self._store.stored_bytes(team)) < most:
            return
        raise QuotaExceeded(
            f"Team {team} stores {format_bytes(there)} and has reached its limit of {format_bytes(most)}",
            where="storage",
            hint=f"pt2hub usage {team} shows what it stores. {_WHO}",
            context={"team": team, "used": there, "limit": most},
        )
