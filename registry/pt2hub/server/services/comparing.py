"""Comparisons of artifacts, and the changes that are flagged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pt2hub.domain.measurements import differing
from pt2hub.domain.names import parse_model_name
from pt2hub.domain.performance import default_threshold
from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput, NotFound
from pt2hub.server.analysis.changes import FEWEST, change_points
from pt2hub.server.db.stores.events import EventStore
from pt2hub.server.db.stores.performance import PerformanceStore
from pt2hub.server.db.stores.versions import VersionStore
from pt2hub.server.services import codes, missing, places
from pt2hub.server.services.catalog import DEFAULT_LIMIT
from pt2hub.server.services.examining import Examination
from pt2hub.server.services.sides import choose
from pt2hub.server.services.verdicts import Verdicts
from pt2hub.wire.performance import ComparisonView, EventPage, SideView

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.performance import Measured
    from pt2hub.server.services.sides import Side
    from pt2hub.wire.resolution import Resolved

_SERIES = 25
"""Series that are examined in one transaction: they are locked, and who measures waits for them."""
_SECONDS = 10.0
"""How long one pass goes on."""


class ComparingService:
    """Compares artifacts, and examines series for changes."""

    def __init__(self, sessions: Sessions, resolve: Callable[[str], Resolved]) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            resolve: Tells what a reference names.
        """
        self._sessions = sessions
        self._resolve = resolve

    def compare(
        self, before: str, after: str, *, target: str | None = None, with_target: str | None = None
    ) -> ComparisonView:
        """Two artifacts side by side, the second judged against the first.

        Args:
            before: A reference.
            after: Another one, or the same for two targets of one version.
            target: Whose artifacts; where omitted the one target that both have.
            with_target: The second side's, where that is another one.

        Raises:
            InvalidInput: A text is no reference, or both sides are one artifact.
            NotFound: There is no such version, alias or artifact, or it has none for the target.
            NotReady: A version has no artifact yet.
            Ambiguous: Several targets could be meant.
        """
        for name in (target, with_target):
            if name is not None:
                parse_target(name)
        sides = self._resolve(before), self._resolve(after)
        one, other = choose(sides[0], sides[1], target=target, with_target=with_target)
        with self._sessions.begin() as session:
            known = PerformanceStore(session).measured((one.digest, other.digest))
            return _compared(session, (one, other), (_there(known, one), _there(known, other)))

    def examine(self) -> int:
        """Looks through series with new figures, and keeps what changed as events.

        Several processes may do it at once, and share the series. One statement where nothing is new. Compared are the
        ten newest versions of a series; change points are looked for among the newest 500.

        Returns:
            How many series were examined.

        Raises:
            DatabaseUnavailable: The database did not answer.
        """
        with self._sessions.begin() as session:
            some, long = EventStore(session).waiting(FEWEST)
        if not some:
            return 0
        if long:
            # What it imports takes seconds the first time: whoever measures must not wait for locked series so long.
            change_points([1.0] * FEWEST, default_threshold("latency_p50"))
        until, total = time.monotonic() + _SECONDS, 0
        while time.monotonic() < until:
            with self._sessions.begin() as session:
                taken = Examination(session).some(_SERIES)
            total += taken
            if taken < _SERIES:
                break
        return total

    def events(
        self,
        *,
        model: str | None = None,
        number: int | None = None,
        target: str | None = None,
        verdict: str | None = None,
        after: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> EventPage:
        """Flagged changes, newest first.

        Args:
            model: Of this model only.
            number: Of the version with this number only.
            target: For this target only.
            verdict: Only `better` or only `worse`.
            after: As the page before said it, None for the newest.
            limit: At most so many.

        Raises:
            InvalidInput: A filter or `after` is none.
            UnknownTarget: The target's name has another form.
            NotFound: There is no such model.
        """
        begin = places.numbered(after, "changes") if after is not None else None
        if target is not None:
            parse_target(target)
        if verdict not in (None, "better", "worse"):
            raise InvalidInput(
                f"{verdict[:80]!a} is no verdict of a flagged change" if verdict else "An empty verdict",
                where="verdict",
                hint="Write better or worse, or leave it out for both.",
            )
        filters = {"model": model, "number": number, "target": target, "verdict": verdict}
        with self._sessions.begin() as session:
            if model is not None and VersionStore(session).model_id(parse_model_name(model)) is None:
                raise missing.no_model(session, model)
            found = EventStore(session).page(filters, after=begin, limit=limit + 1)
        page = tuple(found[:limit])
        return EventPage(page, next=places.told(page[-1].at, page[-1].id) if len(found) > limit else None)


def _compared(
    session: Session, sides: tuple[Side, Side], measured: tuple[Measured, Measured]
) -> ComparisonView:
    found = Verdicts(session).compared(*measured)
    code, kernels = codes.compared(session, sides[0].digest, sides[1].digest)
    differs = differing(found.before, found.after) if found.before and found.after else {}
    return ComparisonView(
        before=_view(sides[0], found.before),
        after=_view(sides[1], found.after),
        metrics=found.metrics,
        autotune=kernels,
        differs={name: list(values) for name, values in differs.items()},
        across=measured[0].target != measured[1].target,
        code=code,
    )


def _there(known: dict[Digest, Measured], side: Side) -> Measured:
    if side.digest not in known:
        raise NotFound(f"There is no artifact {side.digest}", where="artifact")
    return known[side.digest]


def _view(side: Side, environment: dict[str, Any]) -> SideView:
    return SideView(
        side.reference, side.model, side.number, side.target, side.digest, side.created_at, environment
    )
