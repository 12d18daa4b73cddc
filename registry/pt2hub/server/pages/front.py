"""The front page: models, what is in production, recent builds, flagged changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.builds import BuildFilter, BuildState
from pt2hub.domain.names import MAX_NAME, is_team, parse_model_name
from pt2hub.errors import NotFound
from pt2hub.server.api.context import container
from pt2hub.server.pages.aliases import in_production
from pt2hub.server.pages.rendering import fragment, page
from pt2hub.server.pages.routes import routes
from pt2hub.server.pages.stages import any_open
from pt2hub.wire import overview
from pt2hub.wire.overview import GlancePage, Trend
from pt2hub.wire.performance import EventView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.wire.overview import ModelGlance

_FEW = 6
"""Changes, failed builds and builds that are shown beside the models."""
_EVENTS = 100
"""Flagged changes that are looked at: a version that changed did so in several metrics, batches and targets."""
_FIRST = "latency_p50"
_NAMES = "Names of models are team/name; the search at the top finds parts of either."
_LINES = 4
"""Targets that are shown of a model."""
_GIVEN_UP = 4
"""Versions without a figure after which a target is thought to be given up."""


@routes.get("/")
def front() -> Response:
    """Models at a glance; on the first page also what goes on, for scripts that alone."""
    if request.args.get("part"):
        return fragment("front_going.html", bounds=overview, lately=_going_on())
    search, after = _search(), _after()
    found = container().overview.models(search, after=after)
    return _listed(found, search=search, after=after, lately=None if search or after else _lately())


@routes.get("/models")
def models() -> WerkzeugResponse:
    """What an address that was cut off meant: the front page lists the models."""
    return redirect(url_for("pages.front", q=request.args.get("q")))


@routes.get("/models/<team>")
def team(team: str) -> Response:
    """The models of a team."""
    after = _after()
    found = container().overview.models(team=team, after=after) if is_team(team) else GlancePage(())
    if not (found.models or after):
        raise NotFound(f"There is no team {team[:MAX_NAME]} with a model", where="team", hint=_NAMES)
    return _listed(found, team=team, after=after)


def _listed(
    found: GlancePage, *, after: str, search: str = "", team: str = "", lately: dict[str, Any] | None = None
) -> Response:
    return page(
        "front.html",
        room="models",
        search=search,
        team=team,
        after=after,
        found=found,
        lines={glance.model.name: lines_of(glance) for glance in found.models},
        most=_LINES,
        aliases={glance.model.name: _ordered(glance.model.aliases) for glance in found.models},
        lately=lately,
        bounds=overview,
    )


def _after() -> str:
    after = request.args.get("after", "")
    return parse_model_name(after) if after else ""


def _search() -> str:
    """What was searched for; what nobody can type is no part of any name."""
    typed = request.args.get("q", "")
    return "".join(letter for letter in typed if letter.isprintable()).strip()[:MAX_NAME]


@dataclass(frozen=True, slots=True)
class Line:
    """A target of a model at a glance.

    Attributes:
        target: Its name.
        trend: How the latency moved on it, None where it was never measured.
        failed: Whether the newest version's build for it failed.
        current: Whether it goes on: a target that was given up says nothing of today.
    """

    target: str
    trend: Trend | None
    failed: bool
    current: bool

    @property
    def concern(self) -> tuple[bool, float]:
        """What sorts those that somebody must look at first: what failed, then what became slower, by how much."""
        change = self.trend.change if self.trend else None
        worse = change.ratio if change and change.verdict == "worse" else 0.0
        return not self.failed, -worse


def lines_of(glance: ModelGlance) -> list[Line]:
    """The targets of a model, the worst first."""
    newest = max((trend.series.newest for trend in glance.trends), default=0)
    known = {trend.series.target: trend for trend in glance.trends}
    going_on = {name for name, trend in known.items() if newest - trend.series.newest < _GIVEN_UP}
    found = [
        Line(
            name, known.get(name), failed=name in glance.failed, current=name in going_on.union(glance.failed)
        )
        for name in dict.fromkeys((*known, *glance.failed))
    ]
    return sorted(found, key=lambda line: line.concern)


def _ordered(aliases: Mapping[str, int]) -> list[tuple[str, int, bool]]:
    """Name, version and whether it names production, of each alias, those that do first."""
    told = [(name, number, in_production(name)) for name, number in aliases.items()]
    return sorted(told, key=lambda alias: (not alias[2], alias[0]))


def _lately() -> dict[str, Any]:
    changes = _told_once(container().comparing.events(limit=_EVENTS).events)[:_FEW]
    return {**_going_on(), "changes": changes}


def _going_on() -> dict[str, Any]:
    """What changes while builds run."""
    services = container()
    builds = services.catalog.builds(BuildFilter(), limit=_FEW).builds
    return {
        "totals": services.overview.totals(),
        "failed": services.catalog.builds(BuildFilter(state=BuildState.FAILED), limit=_FEW).builds,
        "builds": builds,
        "open": any_open(builds),
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
