"""Figures that others took."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pt2hub.server.db.engine import Sessions


class ReportService:
    """Takes reported figures."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions
