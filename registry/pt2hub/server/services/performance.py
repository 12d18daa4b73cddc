"""Histories of figures, by series."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pt2hub.server.db.engine import Sessions


class PerformanceService:
    """Histories, and what front pages show of them."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions
