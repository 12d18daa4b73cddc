"""Overview of the models: what is in production, its speed, what needs somebody, and totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.targets import parse_target
from pt2hub.domain.version_filters import parse_label_filter
from pt2hub.server.db.stores.publishing.attention import AttentionStore
from pt2hub.server.db.stores.publishing.catalog import CatalogStore
from pt2hub.server.db.stores.publishing.model_list import ModelListStore
from pt2hub.server.db.stores.publishing.overview import OverviewStore
from pt2hub.server.services import not_found
from pt2hub.server.services.publishing.label_filters import LabelOwners, check_label_filters
from pt2hub.server.views.attention import Attention
from pt2hub.server.views.overview import ModelFilter, ModelOverview, OverviewPage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.version_filters import LabelFilter
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.publishing.model_list import ListedModel
    from pt2hub.server.views.overview import FilterChoices, Order, Regression, Totals, Trend
    from pt2hub.wire.responses import ModelView

DEFAULT_MODELS = 25
"""Models on a page."""
_EVERY = ModelFilter()


class OverviewService:
    """Overview of the models, with what needs somebody and totals.

    Args:
        speeds: Returns the latency of versions, given by their models' names, on a target or their main ones.
    """

    def __init__(
        self,
        sessions: Sessions,
        speeds: Callable[[Mapping[str, int], str | None], Mapping[str, Trend]],
        *,
        heartbeat_timeout: timedelta,
    ) -> None:
        self._sessions = sessions
        self._speeds = speeds
        self._heartbeat_timeout = heartbeat_timeout

    def models(
        self,
        wanted: ModelFilter = _EVERY,
        *,
        order: Order = "name",
        after: str = "",
        limit: int = DEFAULT_MODELS,
    ) -> OverviewPage:
        """Return models with their version in production, its speed, and the last build.

        Args:
            after: Name of the previous page's last model; empty for the first page.

        Raises:
            InvalidInput: The label is malformed, no model or version has its key, or a commit is abbreviated.
            UnknownTarget: The target's name is malformed.
        """
        label = parse_label_filter(wanted.label) if wanted.label else None
        if wanted.target:
            parse_target(wanted.target)
        with self._sessions.begin() as session:
            if label:
                check_label_filters(session, [label], LabelOwners.ALL)
            found, views = _listed(session, wanted, label, order, after, limit + 1)
            page = found[:limit]
            store = ModelListStore(session)
            regressions = store.regressions([model.id for model in page])
            builds = store.last_builds(page)
        shown = _shown_versions(page, views)
        speeds = self._speeds(shown, wanted.target or None)
        with self._sessions.begin() as session:
            unmeasured = {name: number for name, number in shown.items() if name not in speeds}
            states = OverviewStore(session).measurements(unmeasured) if unmeasured else {}
        items = tuple(
            ModelOverview(
                views[model.name],
                model.production,
                speeds.get(model.name),
                regressions.get(model.name),
                builds.get(model.name),
                states.get(model.name, ""),
            )
            for model in page
        )
        return OverviewPage(items, next=page[-1].name if len(found) > limit else None)

    def attention(self, team: str = "") -> Attention:
        """Return what needs somebody.

        Args:
            team: Only of its models; empty for all.
        """
        with self._sessions.begin() as session:
            store = AttentionStore(session, team)
            failed = store.failed()
            unmeasurable = {(item.model, item.number) for item in failed if item.is_measuring}
            return Attention(
                store.regressions(),
                failed,
                store.queues(self._heartbeat_timeout),
                tuple(item for item in store.unmeasured() if (item.model, item.number) not in unmeasurable),
                store.has_production(),
                store.damaged(),
            )

    def regression(self, model: str) -> Regression | None:
        """Return the worst regression that a model's version in production still has; None without one.

        Raises:
            NotFound: The model does not exist.
        """
        with self._sessions.begin() as session:
            return ModelListStore(session).regressions([not_found.require_model(session, model)]).get(model)

    def choices(self) -> FilterChoices:
        """Return values to filter models by."""
        with self._sessions.begin() as session:
            return ModelListStore(session).choices()

    def totals(self) -> Totals:
        """Return counts of models, versions, builds and workers."""
        with self._sessions.begin() as session:
            return OverviewStore(session).totals(self._heartbeat_timeout)


def _listed(  # what the store takes
    session: Session, wanted: ModelFilter, label: LabelFilter | None, order: Order, after: str, limit: int
) -> tuple[list[ListedModel], Mapping[str, ModelView]]:
    """Return a page of models, and each as the catalog has it."""
    found = ModelListStore(session).page(wanted, label, order, after=after, limit=limit)
    views = CatalogStore(session).named([model.name for model in found])
    return [model for model in found if model.name in views], views


def _shown_versions(page: Sequence[ListedModel], views: Mapping[str, ModelView]) -> dict[str, int]:
    """Return the version whose speed is shown of each model: the one in production, else the newest ready one."""
    found = {
        model.name: model.production.number if model.production else views[model.name].newest_ready
        for model in page
    }
    return {name: number for name, number in found.items() if number is not None}
