"""The front page: models, what is in production, recent builds, flagged changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import request

from pt2hub.domain.builds import BuildFilter, BuildState
from pt2hub.domain.names import MAX_NAME, parse_model_name
from pt2hub.server.api.context import container
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes
from pt2hub.wire import overview
from pt2hub.wire.performance import EventView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from flask import Response

    from pt2hub.wire.overview import Trend

_FEW = 6
"""Changes, failed builds and builds that are shown beside the models."""
_EVENTS = 100
"""Flagged changes that are looked at: a version that changed did so in several metrics, batches and targets."""
_FIRST = "latency_p50"
_TRENDS = 4
"""Targets whose figures are shown of a model."""
_GIVEN_UP = 4
"""Versions without a figure after which a target is thought to be given up."""
_PRODUCTION = ("prod", "live")
"""How aliases begin that teams call what serves their users; those are shown first."""


@routes.get("/")
def front() -> Response:
    """Models at a glance; on the first page also what goes on."""
    search, after = _search(), request.args.get("after", "")
    found = container().overview.models(search, after=parse_model_name(after) if after else "")
    return page(
        "front.html",
        room="models",
        search=search,
        after=after,
        found=found,
        trends={glance.model.name: _current(glance.trends) for glance in found.models},
        aliases={glance.model.name: _ordered(glance.model.aliases) for glance in found.models},
        lately=None if search or after else _lately(),
        bounds=overview,
    )


def _search() -> str:
    """What was searched for; what nobody can type is no part of any name."""
    typed = request.args.get("q", "")
    return "".join(letter for letter in typed if letter.isprintable()).strip()[:MAX_NAME]


def _current(trends: Sequence[Trend]) -> list[Trend]:
    """The trends that go on, a few: a target that was given up says nothing of today."""
    newest = max((trend.series.newest for trend in trends), default=0)
    return [trend for trend in trends if newest - trend.series.newest < _GIVEN_UP][:_TRENDS]


def _ordered(aliases: Mapping[str, int]) -> list[tuple[str, int, bool]]:
    """Name, version and whether it names production, of each alias, those that do first."""
    told = [(name, number, name.lower().startswith(_PRODUCTION)) for name, number in aliases.items()]
    return sorted(told, key=lambda alias: (not alias[2], alias[0]))


def _lately() -> dict[str, Any]:
    services = container()
    failed = BuildFilter(state=BuildState.FAILED)
    return {
        "totals": services.overview.totals(),
        "changes": _told_once(services.comparing.events(limit=_EVENTS).events)[:_FEW],
        "failed": services.catalog.builds(failed, limit=_FEW).builds,
        "builds": services.catalog.builds(BuildFilter(), limit=_FEW).builds,
    }


@dataclass(frozen=True, slots=True)
class Told:
    """A version that changed.

    Attributes:
        event: The newest of its flagged changes, that of the latency if there is one.
        targets: Further targets that one was flagged on.
        metrics: Further metrics.
    """

    event: EventView
    targets: tuple[str, ...]
    metrics: tuple[str, ...]


def _told_once(events: Iterable[EventView]) -> list[Told]:
    """Each version once for the better and once for the worse, newest first."""
    found: dict[tuple[str, int, str], list[EventView]] = {}
    for event in events:
        found.setdefault((event.model, event.number, event.verdict), []).append(event)
    return [_told(group) for group in found.values()]


def _told(group: Sequence[EventView]) -> Told:
    first = next((event for event in group if event.metric == _FIRST), group[0])
    targets = {event.target: None for event in group if event.target != first.target}
    metrics = {event.metric: None for event in group if event.metric != first.metric}
    return Told(first, tuple(targets), tuple(metrics))
