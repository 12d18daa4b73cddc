"""Comparisons of artifacts, and the changes that are flagged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pt2hub.server.db.engine import Sessions


class ComparingService:
    """Compares artifacts, and examines series for changes."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions

    def examine(self) -> None:
        """Looks through series with new figures, and keeps what changed as events."""
