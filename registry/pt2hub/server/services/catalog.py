"""What there is: models, what they are said to be, versions and builds, page by page.

A page says where the next one begins, by the last thing on it and not by its place: what is published meanwhile
makes nothing appear twice or be left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.domain.names import parse_model_name
from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput
from pt2hub.server.db.stores.build_views import BuildViewStore
from pt2hub.server.db.stores.catalog import CatalogStore
from pt2hub.server.db.stores.versions import VersionStore
from pt2hub.server.services import missing, places
from pt2hub.server.services.texts import plain
from pt2hub.wire.shapes import BuildPage, ModelPage, ModelView, VersionPage

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import BuildFilter
    from pt2hub.server.db.engine import Sessions

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_DESCRIPTION = 2000
"""Characters in the description of a model."""
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


class CatalogService:
    """Lists of what there is."""

    def __init__(self, sessions: Sessions, *, silence: timedelta) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._silence = silence

    def models(self, search: str = "", *, after: str = "", limit: int = DEFAULT_LIMIT) -> ModelPage:
        """Models in the order of their names.

        Args:
            search: A part of the name, in any letters' case.
            after: The name that they follow.
            limit: At most so many.
        """
        with self._sessions.begin() as session:
            found = CatalogStore(session).models(search.lower(), after=after, limit=limit + 1)
        page = tuple(found[:limit])
        return ModelPage(page, next=page[-1].name if len(found) > limit else None)

    def model(self, name: str) -> ModelView:
        """A model.

        Raises:
            InvalidInput: The text is no model's name.
            NotFound: There is no such model; near names are in the hint.
        """
        with self._sessions.begin() as session:
            found = CatalogStore(session).model(parse_model_name(name))
            if found is None:
                raise missing.no_model(session, name)
            return found

    def describe(self, name: str, text: str) -> ModelView:
        """Says what a model is, for people.

        It is the model's and no part of any spec, where another sentence would make another version.

        Args:
            name: The model's name.
            text: Plain text, its line breaks kept; empty to take the description away.

        Raises:
            InvalidInput: It is too long, or holds characters that steer a terminal.
            NotFound: There is no such model; near names are in the hint.
        """
        wanted = _description(text)
        with self._sessions.begin() as session:
            store = CatalogStore(session)
            store.describe(parse_model_name(name), wanted)
            found = store.model(name)
            if found is None:
                raise missing.no_model(session, name)
            return found

    def versions(self, model: str, *, before: int | None = None, limit: int = DEFAULT_LIMIT) -> VersionPage:
        """Versions of a model, newest first.

        Args:
            model: The model's name.
            before: The number that they are below, None for the newest.
            limit: At most so many.

        Raises:
            InvalidInput: The text is no model's name.
            NotFound: There is no such model; near names are in the hint.
        """
        with self._sessions.begin() as session:
            model_id = VersionStore(session).model_id(parse_model_name(model))
            if model_id is None:
                raise missing.no_model(session, model)
            found = CatalogStore(session).versions(model_id, before=before, limit=limit + 1)
        page = tuple(found[:limit])
        return VersionPage(page, next=page[-1].number if len(found) > limit else None)

    def builds(
        self, wanted: BuildFilter, *, after: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> BuildPage:
        """Builds and measuring jobs, newest first, without their steps.

        Args:
            wanted: Which of them.
            after: As the page before said it, None for the newest.
            limit: At most so many.

        Raises:
            InvalidInput: A filter or `after` is none.
            UnknownTarget: The target's name has another form.
            NotFound: There is no such model or version.
        """
        begin = places.read(after, _ID, "builds") if after is not None else None
        with self._sessions.begin() as session:
            _check(session, wanted)
            found = BuildViewStore(session).page(wanted, after=begin, limit=limit + 1, silence=self._silence)
        page = tuple(found[:limit])
        return BuildPage(
            page, next=places.told(page[-1].created_at, page[-1].id) if len(found) > limit else None
        )


def _description(text: str) -> str:
    kept = plain(text, what="The description", where="description")
    if len(kept) > MAX_DESCRIPTION:
        raise InvalidInput(
            f"The description has {len(kept):,} characters",
            where="description",
            hint=f"At most {MAX_DESCRIPTION:,} are kept: say what the model is and whom to ask, and link the rest.",
        )
    return kept


def _check(session: Session, wanted: BuildFilter) -> None:
    """Refuses filters that can match nothing, ever: an empty list would hide the misspelling."""
    if wanted.target is not None:
        parse_target(wanted.target)
    if wanted.number is not None and wanted.model is None:
        raise InvalidInput(
            "A number without a model names no version", where="number", hint="Add model=team/name."
        )
    if wanted.model is None:
        return
    versions = VersionStore(session)
    if versions.model_id(parse_model_name(wanted.model)) is None:
        raise missing.no_model(session, wanted.model)
    if wanted.number is not None and versions.by_number(wanted.model, wanted.number) is None:
        raise missing.no_version(session, wanted.model, wanted.number)
