"""Overview of the models: their newest versions, trends, and totals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.server.db.stores.publishing.catalog import CatalogStore
from pt2hub.server.db.stores.publishing.overview import OverviewStore
from pt2hub.server.views.overview import ModelOverview, OverviewPage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.overview import Totals, Trend

DEFAULT_MODELS = 20
"""Models on a page."""


class OverviewService:
    """Overview of the models, with totals.

    Args:
        trends: Returns the performance trends of models, by name.
    """

    def __init__(
        self,
        sessions: Sessions,
        trends: Callable[[Sequence[str]], Mapping[str, tuple[Trend, ...]]],
        *,
        heartbeat_timeout: timedelta,
    ) -> None:
        self._sessions = sessions
        self._trends = trends
        self._heartbeat_timeout = heartbeat_timeout

    def models(
        self, search: str = "", *, team: str = "", after: str = "", limit: int = DEFAULT_MODELS
    ) -> OverviewPage:
        """Return the models in the order of their names, with their newest versions and trends.

        Args:
            team: Only this team's models; every team's where omitted.
        """
        with self._sessions.begin() as session:
            found = CatalogStore(session).models(search.lower(), after=after, limit=limit + 1, team=team)
            page = found[:limit]
            overviews = OverviewStore(session).summaries(page)
        trends = self._trends([model.name for model in page])
        items = tuple(
            replace(overviews.get(model.name, ModelOverview(model)), trends=trends.get(model.name, ()))
            for model in page
        )
        return OverviewPage(items, next=page[-1].name if len(found) > limit else None)

    def totals(self) -> Totals:
        """Return counts of models, versions, builds and workers."""
        with self._sessions.begin() as session:
            return OverviewStore(session).totals(self._heartbeat_timeout)
