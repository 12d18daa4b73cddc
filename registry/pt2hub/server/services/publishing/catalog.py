"""Paginated lists of models, versions and builds; model descriptions.

Cursors name the last item of a page, not its offset, so that items published meanwhile neither repeat nor hide others.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.domain.names import parse_model_name
from pt2hub.domain.targets import parse_target
from pt2hub.domain.version_filters import parse_conditions, parse_label_filter
from pt2hub.errors import InvalidInput
from pt2hub.server.db.stores.builds.build_views import BuildViewStore
from pt2hub.server.db.stores.publishing.catalog import CatalogStore
from pt2hub.server.db.stores.publishing.version_search import VersionSearchStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.builds import build_places
from pt2hub.server.services.publishing.descriptions import plain
from pt2hub.server.services.publishing.label_filters import LabelOwners, check_label_filters
from pt2hub.wire.responses import BuildPage, FoundVersions, ModelPage, ModelView, VersionPage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import BuildFilter
    from pt2hub.domain.tokens import Actor
    from pt2hub.domain.version_filters import VersionFilter
    from pt2hub.server.db.engine import Sessions

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_DESCRIPTION_CHARS = 2000


class CatalogService:
    """Lists of models, versions and builds."""

    def __init__(self, sessions: Sessions, *, heartbeat_timeout: timedelta) -> None:
        self._sessions = sessions
        self._heartbeat_timeout = heartbeat_timeout

    def models(
        self, search: str = "", *, labels: Sequence[str] = (), after: str = "", limit: int = DEFAULT_LIMIT
    ) -> ModelPage:
        """Return the models in the order of their names.

        Args:
            search: A part of the name.
            labels: Labels of the models themselves, `KEY=VALUE` or `KEY`; all must match.

        Raises:
            InvalidInput: A label is malformed, or no model has its key.
        """
        wanted = [parse_label_filter(text) for text in labels]
        with self._sessions.begin() as session:
            check_label_filters(session, wanted, LabelOwners.MODELS)
            found = CatalogStore(session).models(search.lower(), labels=wanted, after=after, limit=limit + 1)
        page = tuple(found[:limit])
        return ModelPage(page, next=page[-1].name if len(found) > limit else None)

    def model(self, name: str) -> ModelView:
        """Return a model.

        Raises:
            InvalidInput: The name is malformed.
            NotFound: The model does not exist; the hint has suggestions.
        """
        with self._sessions.begin() as session:
            found = CatalogStore(session).model(parse_model_name(name))
            if found is None:
                raise not_found.no_model(session, name)
            return found

    def describe(self, name: str, text: str, *, by: Actor) -> ModelView:
        """Set a model's description.

        It belongs to the model and not to the spec, where a new wording would make a new version.

        Args:
            text: Plain text, its line breaks kept; empty to remove the description.

        Raises:
            InvalidInput: It is too long, or contains control characters.
            NotFound: The model does not exist; the hint has suggestions.
        """
        wanted = _description(text)
        with self._sessions.begin() as session:
            store = CatalogStore(session)
            before = store.describe(parse_model_name(name), wanted, by=by.principal)
            found = store.model(name)
            if found is None:
                raise not_found.no_model(session, name)
            if before is not None:
                audit_log.record(
                    session, by, Action.MODEL_DESCRIBE, name, models=[name], before=before, after=wanted
                )
            return found

    def versions(self, model: str, *, before: int | None = None, limit: int = DEFAULT_LIMIT) -> VersionPage:
        """Return the versions of a model, newest first.

        Args:
            before: Exclusive upper bound of the numbers; None for the newest.

        Raises:
            InvalidInput: The name is malformed.
            NotFound: The model does not exist; the hint has suggestions.
        """
        with self._sessions.begin() as session:
            model_id = not_found.require_model(session, model)
            found = CatalogStore(session).versions(model_id, before=before, limit=limit + 1)
        page = tuple(found[:limit])
        return VersionPage(page, next=page[-1].number if len(found) > limit else None)

    def neighbours(self, model: str, number: int) -> tuple[int | None, int | None]:
        """Return the numbers of the versions before and after a version; None where there is none.

        Raises:
            NotFound: The model does not exist.
        """
        with self._sessions.begin() as session:
            return VersionStore(session).neighbours(not_found.require_model(session, model), number)

    def search(
        self,
        conditions: Sequence[str],
        *,
        after: int | None = None,
        limit: int = DEFAULT_LIMIT,
        oldest_first: bool = False,
    ) -> FoundVersions:
        """Return the versions of all models that meet all conditions, newest first unless asked otherwise.

        Args:
            conditions: As `domain.version_filters.parse_conditions` reads them.
            after: The previous page's cursor; None for the first page.

        Raises:
            InvalidInput: A condition is malformed, or names a field or label that does not exist.
            NotFound: The model does not exist.
        """
        wanted = parse_conditions(conditions, now=datetime.now(UTC))
        with self._sessions.begin() as session:
            _check_conditions(session, wanted)
            store = VersionSearchStore(session)
            ids = store.find(wanted, after=after, limit=limit + 1, oldest_first=oldest_first)
            page = CatalogStore(session).summaries(ids[:limit])
        return FoundVersions(tuple(page), next=ids[limit - 1] if len(ids) > limit else None)

    def fastest(
        self, conditions: Sequence[str], series: int, *, after: int | None = None, limit: int = DEFAULT_LIMIT
    ) -> FoundVersions:
        """Return the versions of a model that have a point in a series, the lowest value first.

        Args:
            conditions: As for `search`; one of them names the model of the series.
            after: The previous page's cursor, a version number; None for the first page.

        Raises:
            InvalidInput: A condition is malformed, or names a field or label that does not exist.
            NotFound: The model does not exist.
        """
        wanted = parse_conditions(conditions, now=datetime.now(UTC))
        with self._sessions.begin() as session:
            _check_conditions(session, wanted)
            found = VersionSearchStore(session).fastest(wanted, series, after=after, limit=limit + 1)
            page = CatalogStore(session).summaries([id_ for id_, _ in found[:limit]])
        return FoundVersions(tuple(page), next=found[limit - 1][1] if len(found) > limit else None)

    def builds(
        self, wanted: BuildFilter, *, after: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> BuildPage:
        """Return the builds and measuring jobs in the wanted order, without their steps.

        Args:
            after: The previous page's cursor; None for the first page.

        Raises:
            InvalidInput: A filter or the cursor is malformed.
            UnknownTarget: The target's name is malformed.
            NotFound: The model or version does not exist.
        """
        begin = build_places.decode(wanted.order, after) if after is not None else None
        with self._sessions.begin() as session:
            _check(session, wanted)
            found = BuildViewStore(session).page(
                wanted, after=begin, limit=limit + 1, heartbeat_timeout=self._heartbeat_timeout
            )
        page = tuple(found[:limit])
        return BuildPage(
            page, next=build_places.encode(wanted.order, page[-1]) if len(found) > limit else None
        )


def _description(text: str) -> str:
    kept = plain(text, what="The description", where="description")
    if len(kept) > MAX_DESCRIPTION_CHARS:
        raise InvalidInput(
            f"The description is too long ({len(kept):,} characters, at most {MAX_DESCRIPTION_CHARS:,})",
            where="description",
            hint="Say what the model is and who maintains it, and link to the rest.",
        )
    return kept


def _check(session: Session, wanted: BuildFilter) -> None:
    """Refuse filters that can never match: an empty list would hide a misspelling."""
    if wanted.target is not None:
        parse_target(wanted.target)
    if wanted.number is not None and wanted.model is None:
        raise InvalidInput(
            "model is required when number is given", where="number", hint="Add model=team/name."
        )
    if wanted.model is None:
        return
    if wanted.number is None:
        not_found.require_model(session, wanted.model)
    else:
        not_found.require_version(session, wanted.model, wanted.number)


def _check_conditions(session: Session, wanted: VersionFilter) -> None:
    """Refuse conditions that can never match: an empty list would hide a misspelling."""
    if wanted.model is not None and not wanted.model.endswith("/"):
        not_found.require_model(session, wanted.model)
    check_label_filters(session, wanted.labels, LabelOwners.VERSIONS)
