"""Artifact summaries for a version's page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pt2hub.domain.publishing.compile_options import weights_form
from pt2hub.server.db.stores.artifacts.artifact_summaries import ArtifactSummaryStore
from pt2hub.server.db.stores.performance.series import HistoryStore
from pt2hub.server.services import not_found

if TYPE_CHECKING:
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.artifact_summaries import ArtifactSummary


class ArtifactSummaryService:
    """Summaries of a version's artifacts."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def artifacts(self, model: str, number: int) -> tuple[ArtifactSummary, ...]:
        """Return the artifacts of a version, in the order the targets were submitted.

        Raises:
            InvalidInput: The name is malformed.
            NotFound: The version does not exist.
        """
        with self._sessions.begin() as session:
            version = not_found.require_version(session, model, number)
            model_id = not_found.require_model(session, model)
            batch = HistoryStore(session).example_batches([model_id]).get(model_id)
            store = ArtifactSummaryStore(session)
            figures = store.latencies(model_id, number, batch)
            return tuple(store.artifacts(version.id, figures, partial(weights_form, version.spec)))
