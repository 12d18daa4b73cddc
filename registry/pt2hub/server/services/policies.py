"""What models' owners demand of performance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pt2hub.server.db.engine import Sessions


class PolicyService:
    """Policies of models."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions
