"""Front page: models, versions in production, recent builds and flagged changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.builds import BuildFilter, BuildState
from pt2hub.domain.names import MAX_NAME, is_team, parse_model_name
from pt2hub.errors import NotFound
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.builds.steps import any_open
from pt2hub.server.pages.promotion.aliases import in_production
from pt2hub.server.pages.templates import fragment, page
from pt2hub.server.views import overview
from pt2hub.server.views.overview import OverviewPage, Trend
from pt2hub.wire.performance import EventView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.server.views.overview import ModelOverview

_MAX_ACTIVITY = 6
"""Changes, failed builds and builds shown next to the models."""
_MAX_EVENTS = 100
"""Flagged changes to group: one version usually changes in several metrics, batch sizes and targets."""
_MAIN_METRIC = "latency_p50"
_NAMES = "Model names are team/name. The search at the top matches any part of them."
_MAX_LINES = 4
"""Targets shown per model."""
_ABANDONED_AFTER = 4
"""Versions without a measurement after which a target counts as abandoned."""


@routes.get("/")
def front() -> Response:
    """Return the overview of models, with current activity on the first page; with `part`, the activity alone."""
    if request.args.get("part"):
        return fragment("front_activity.html", bounds=overview, activity=_current_activity())
    search, after = _search(), _after()
    found = container().overview.models(search, after=after)
    return _list_response(
        found, search=search, after=after, activity=None if search or after else _activity()
    )


@routes.get("/models")
def models() -> WerkzeugResponse:
    """Redirect to the front page, which lists the models."""
    return redirect(url_for("pages.front", q=request.args.get("q")))


@routes.get("/models/<team>")
def team(team: str) -> Response:
    """Return the models of a team."""
    after = _after()
    found = container().overview.models(team=team, after=after) if is_team(team) else OverviewPage(())
    if not (found.models or after):
        raise NotFound(f"Team {team[:MAX_NAME]} not found", where="team", hint=_NAMES)
    return _list_response(found, team=team, after=after)


def _list_response(
    found: OverviewPage,
    *,
    after: str,
    search: str = "",
    team: str = "",
    activity: dict[str, Any] | None = None,
) -> Response:
    return page(
        "front.html",
        section="models",
        search=search,
        team=team,
        after=after,
        found=found,
        lines={overview.model.name: lines_of(overview) for overview in found.models},
        max_lines=_MAX_LINES,
        aliases={overview.model.name: _order_aliases(overview.model.aliases) for overview in found.models},
        activity=activity,
        bounds=overview,
    )


def _after() -> str:
    after = request.args.get("after", "")
    return parse_model_name(after) if after else ""


def _search() -> str:
    """Return the search text without unprintable characters."""
    typed = request.args.get("q", "")
    return "".join(letter for letter in typed if letter.isprintable()).strip()[:MAX_NAME]


@dataclass(frozen=True, slots=True)
class Line:
    """A target in a model's overview.

    Attributes:
        trend: Latency over versions, None if never measured.
        failed: Whether the newest version's build for it failed.
        current: Whether it is not abandoned.
    """

    target: str
    trend: Trend | None
    failed: bool
    current: bool

    @property
    def sort_key(self) -> tuple[bool, float]:
        """Sort key: failed builds first, then the largest regressions."""
        change = self.trend.change if self.trend else None
        worse = change.ratio if change and change.outcome == "worse" else 0.0
        return not self.failed, -worse


def lines_of(overview: ModelOverview) -> list[Line]:
    """Return the targets of a model, the most urgent first."""
    newest = max((trend.series.newest for trend in overview.trends), default=0)
    known = {trend.series.target: trend for trend in overview.trends}
    current = {name for name, trend in known.items() if newest - trend.series.newest < _ABANDONED_AFTER}
    found = [
        Line(
            name,
            known.get(name),
            failed=name in overview.failed,
            current=name in current.union(overview.failed),
        )
        for name in dict.fromkeys((*known, *overview.failed))
    ]
    return sorted(found, key=lambda line: line.sort_key)


def _order_aliases(aliases: Mapping[str, int]) -> list[tuple[str, int, bool]]:
    """Return each alias's name, version and whether it is in production, production aliases first."""
    found = [(name, number, in_production(name)) for name, number in aliases.items()]
    return sorted(found, key=lambda alias: (not alias[2], alias[0]))


def _activity() -> dict[str, Any]:
    changes = _group_events(container().comparisons.events(limit=_MAX_EVENTS).events)[:_MAX_ACTIVITY]
    return {**_current_activity(), "changes": changes}


def _current_activity() -> dict[str, Any]:
    """Return the activity that changes while builds run."""
    services = container()
    builds = services.catalog.builds(BuildFilter(), limit=_MAX_ACTIVITY).builds
    return {
        "totals": services.overview.totals(),
        "failed": services.catalog.builds(BuildFilter(state=BuildState.FAILED), limit=_MAX_ACTIVITY).builds,
        "builds": builds,
        "open": any_open(builds),
    }


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """The flagged changes of a version.

    Attributes:
        event: The newest change, of the latency if there is one.
    """

    event: EventView
    targets: tuple[str, ...]
    metrics: tuple[str, ...]


def _group_events(events: Iterable[EventView]) -> list[ChangeSummary]:
    """Group events by version and outcome, newest first."""
    found: dict[tuple[str, int, str], list[EventView]] = {}
    for event in events:
        found.setdefault((event.model, event.number, event.outcome), []).append(event)
    return [_summarize_group(group) for group in found.values()]


def _summarize_group(group: Sequence[EventView]) -> ChangeSummary:
    first = next((event for event in group if event.metric == _MAIN_METRIC), group[0])
    targets = {event.target: None for event in group if event.target != first.target}
    metrics = {event.metric: None for event in group if event.metric != first.metric}
    return ChangeSummary(first, tuple(targets), tuple(metrics))
