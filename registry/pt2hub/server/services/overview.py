"""What people see first: models at a glance, and how all of them do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.server.db.stores.catalog import CatalogStore
from pt2hub.server.db.stores.overview import OverviewStore
from pt2hub.wire.overview import GlancePage, ModelGlance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.overview import Standing
    from pt2hub.wire.overview import Totals, Trend
    from pt2hub.wire.shapes import ModelView

DEFAULT_MODELS = 20
"""Models on a page."""


class OverviewService:
    """Models at a glance, and numbers."""

    def __init__(
        self,
        sessions: Sessions,
        trends: Callable[[Sequence[str]], Mapping[str, tuple[Trend, ...]]],
        *,
        silence: timedelta,
    ) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            trends: Tells how the figures of models moved, by their names.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._trends = trends
        self._silence = silence

    def models(
        self, search: str = "", *, team: str = "", after: str = "", limit: int = DEFAULT_MODELS
    ) -> GlancePage:
        """Models in the order of their names, with their newest versions and how their speed moved.

        Args:
            search: A part of the name, in any letters' case.
            team: Whose; every team's where omitted.
            after: The name that they follow.
            limit: At most so many.
        """
        with self._sessions.begin() as session:
            found = CatalogStore(session).models(search.lower(), after=after, limit=limit + 1, team=team)
            page = found[:limit]
            standings = OverviewStore(session).standings(page)
        trends = self._trends([model.name for model in page])
        glances = tuple(
            _glance(model, standings.get(model.name), trends.get(model.name, ())) for model in page
        )
        return GlancePage(glances, next=page[-1].name if len(found) > limit else None)

    def totals(self) -> Totals:
        """What there is and what goes on, in numbers."""
        with self._sessions.begin() as session:
            return OverviewStore(session).totals(self._silence)


def _glance(model: ModelView, standing: Standing | None, trends: tuple[Trend, ...]) -> ModelGlance:
    if standing is None:
        return ModelGlance(model)
    told = standing.failed, standing.measurement
    return ModelGlance(model, standing.state, standing.at, standing.ready_at, trends, *told)
