"""Versions that got better or worse."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.names import is_team
from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput
from pt2hub.server.db.stores.performance.changes import EventStore
from pt2hub.server.db.stores.performance.version_changes import (
    ChangeFilter,
    ChangeKey,
    VersionChangeStore,
)
from pt2hub.server.db.stores.values import stamp
from pt2hub.server.services import cursors, not_found
from pt2hub.server.views.changes import RecentRegressions, VersionChange, VersionChangePage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.performance.version_changes import PublishedVersion
    from pt2hub.wire.performance import EventView

MAX_EVENTS_OF_CHANGE = 24
"""Events of one version on a page; with a filter by target, all others are found."""
RECENT_DAYS = 7
PRODUCTION = ("prod", "live")
"""Beginnings of the names of production aliases."""
SORTS = ("newest", "worst")
_SEVERITY = re.compile(r"(-?[0-9.e+-]{1,30}),([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class ChangeQuery:
    """Filters of changes; None matches everything.

    Attributes:
        model: A model, or a team where it is no `team/name`.
        outcome: `better` or `worse`.
        days: Only what was flagged in the last days.
    """

    model: str | None = None
    target: str | None = None
    outcome: str | None = None
    days: int | None = None


class VersionChangeService:
    """Lists the versions that got better or worse."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def changes(
        self, query: ChangeQuery, *, sort: str = SORTS[0], after: str | None = None, limit: int
    ) -> VersionChangePage:
        """List versions with flagged changes.

        Args:
            sort: `newest` or `worst`.
            after: The previous page's cursor; None for the first page.

        Raises:
            InvalidInput: A filter, the order or the cursor is malformed.
            UnknownTarget: The target's name is malformed.
            NotFound: The model does not exist.
        """
        _check(query)
        if sort not in SORTS:
            raise InvalidInput(
                f"Unknown order {sort[:80]!a}", where="sort", hint=f"Use {' or '.join(SORTS)}."
            )
        by_time = sort == SORTS[0]
        with self._sessions.begin() as session:
            wanted = _filter(session, query)
            store = VersionChangeStore(session)
            if by_time:
                begin = cursors.decode_numbered(after, "changes") if after is not None else None
                found = store.newest(wanted, after=begin, limit=limit + 1)
            else:
                found = store.worst(wanted, after=_decode_severity(after), limit=limit + 1)
            keys = found[:limit]
            versions = [(key.model_id, key.number, key.outcome) for key in keys]
            events = EventStore(session).of_versions(versions, query.target, MAX_EVENTS_OF_CHANGE + 1)
            published = store.published({(key.model_id, key.number) for key in keys})
        views = tuple(_view(key, events, published.get((key.model_id, key.number))) for key in keys)
        return VersionChangePage(views, _cursor(keys[-1], by_time=by_time) if len(found) > limit else None)

    def recent(self, query: ChangeQuery) -> RecentRegressions:
        """Count the versions that were flagged as worse within the query's days, or within seven without them.

        Its outcome does not matter.

        Raises:
            InvalidInput: A filter is malformed.
            UnknownTarget: The target's name is malformed.
            NotFound: The model does not exist.
        """
        days = query.days or RECENT_DAYS
        worse = replace(query, outcome="worse", days=days)
        _check(worse)
        with self._sessions.begin() as session:
            wanted = _filter(session, worse)
            count, in_production = VersionChangeStore(session).count(wanted, PRODUCTION)
        return RecentRegressions(days, count, in_production)


def _check(query: ChangeQuery) -> None:
    if query.target is not None:
        parse_target(query.target)
    if query.outcome not in (None, "better", "worse"):
        raise InvalidInput(
            f"Unknown outcome {query.outcome[:80]!a}",
            where="outcome",
            hint="Use better or worse, or omit it for both.",
        )


def _filter(session: Session, query: ChangeQuery) -> ChangeFilter:
    model = query.model
    team = model if model is not None and is_team(model) else None
    if model is not None and team is None:
        not_found.require_model(session, model)
    since = None if query.days is None else datetime.now(UTC) - timedelta(days=query.days)
    return ChangeFilter(None if team else model, team, query.target, query.outcome, since)


def _decode_severity(after: str | None) -> tuple[float, int] | None:
    if after is None:
        return None
    found = _SEVERITY.fullmatch(after)
    try:
        severity = float(found[1]) if found else math.nan
    except ValueError:
        severity = math.nan
    if found is None or not math.isfinite(severity):
        raise InvalidInput(
            f"Invalid cursor {after[:80]!a} in the list of changes",
            where="after",
            hint="Use the link to the next page, or omit it to begin with the worst.",
        )
    return severity, int(found[2])


def _cursor(key: ChangeKey, *, by_time: bool) -> str:
    return cursors.encode(stamp(key.at), key.event) if by_time else f"{key.severity!r},{key.event}"


def _view(key: ChangeKey, events: Sequence[EventView], version: PublishedVersion | None) -> VersionChange:
    mine = [
        event
        for event in events
        if (event.model, event.number, event.outcome) == (key.model, key.number, key.outcome)
    ]
    return VersionChange(
        key.model,
        key.number,
        mine[0].before,
        key.outcome,
        stamp(key.at),
        tuple(mine[:MAX_EVENTS_OF_CHANGE]),
        more=len(mine) > MAX_EVENTS_OF_CHANGE,
        publisher=version.publisher if version else None,
        owner=version.owner if version else None,
        published_at=stamp(version.at) if version else None,
        aliases=version.aliases if version else (),
    )
