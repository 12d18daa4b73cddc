"""Usual durations of a build's steps, from earlier builds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.server.db.stores.builds.step_durations import StepDurationStore

if TYPE_CHECKING:
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.step_durations import StepDurations
    from pt2hub.wire.responses import BuildView


class StepDurationService:
    """Durations of steps of builds that succeeded, for estimates."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def earlier(self, build: BuildView) -> StepDurations:
        """Return the durations in the last builds before this one: of its model, else for its target."""
        with self._sessions.begin() as session:
            return StepDurationStore(session).earlier(build)
