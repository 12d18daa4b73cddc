"""How a model's figures moved: a chart for each metric, and the table below it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from flask import request, url_for

from pt2hub.domain.performance import METRICS
from pt2hub.errors import InvalidInput
from pt2hub.server.api.context import container, render
from pt2hub.server.pages.charts import Chart, chart, colour
from pt2hub.server.pages.figures import BETWEEN, Row, choice, parse_choice, rows
from pt2hub.server.pages.numbers import MOST_VERSION, in_address
from pt2hub.server.pages.plots import Plot, plot
from pt2hub.server.pages.points import document
from pt2hub.server.pages.rendering import finish, page
from pt2hub.server.pages.routes import routes
from pt2hub.server.services.charting import EVERY, MOST_POINTS, ChartQuery
from pt2hub.server.services.performance import MAX_POINTS

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.datastructures import MultiDict

    from pt2hub.wire.charts import ChartsView

LIMITS = (50, 200, 1000, MOST_POINTS)
"""Versions of a series that a form offers."""
_DEFAULT = 200
_MOST_BATCH = 2**63 - 1
_MOST_NAMED = 50
_ROWS, _ROWS_OF_MANY, _ROWS_OF_ONE = 40, 10, 200
"""Rows below the first chart, below each further one, and where it is the only one."""
_LARGE, _SMALL = (1280, 360), (720, 280)
_TALLER = 1.4
"""Times of a chart whose lines lie far apart."""
_ZOOM = re.compile(rf"(-?\d{{1,12}}(?:\.\d{{1,6}})?){BETWEEN}(-?\d{{1,12}}(?:\.\d{{1,6}})?)", re.ASCII)
_BY = ("version", "time")
_SHOWN_AS = ("value", "zero", "change")


@dataclass(frozen=True, slots=True)
class Shown:
    """A chart, laid out, with its table.

    Attributes:
        chart: What it shows.
        plot: Where everything lies.
        rows: The newest rows of its table.
        csv: Where its figures are as CSV.
        alone: The address of the page with nothing but it.
        points: Where scripts get its points.
        older: The page with older versions, None where there are none.
    """

    chart: Chart
    plot: Plot
    rows: list[Row]
    csv: str
    alone: str
    points: str
    older: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address says.

    Attributes:
        model: The model's name.
        query: Which charts.
        by: What is on the x axis, one of `version` and `time`.
        shown_as: What is on the y axis, one of `value`, `zero` (figures from zero on) and `change`.
        picked: Points that were chosen for a comparison, two at most.
    """

    model: str
    query: ChartQuery
    by: str
    shown_as: str
    picked: tuple[str, ...]

    def address(self, endpoint: str = "pages.performance", **other: Any) -> str:  # noqa: ANN401  # of queries
        """The address of this page, with other values for some of what it says; None leaves one out."""
        query = self.query
        values = {
            "metric": query.metrics,
            "target": query.targets,
            "batch": query.batch,
            "subject": None if query.subject == "artifact" else query.subject,
            "environment": query.environment,
            "from": query.first,
            "to": query.last,
            "limit": None if query.limit == _DEFAULT else query.limit,
            "x": None if self.by == _BY[0] else self.by,
            "y": None if self.shown_as == _SHOWN_AS[0] else self.shown_as,
        }
        team, _, name = self.model.partition("/")
        given = {name: value for name, value in (values | other).items() if value not in (None, ())}
        told = f"?{urlencode(given, doseq=True)}" if given else ""
        return url_for(endpoint, team=team, name=name) + told


@routes.get("/models/<team>/<name>/performance")
def performance(team: str, name: str) -> Response:
    """How fast it is, where, since when, and whether that is noise."""
    asked = _asked(team, name)
    view = container().charting.charts(asked.model, asked.query)
    drawn = _drawn(asked, view)
    return page(
        "performance.html",
        room="models",
        asked=asked,
        view=view,
        shown=[_shown(asked, item, place, len(drawn)) for place, item in enumerate(drawn)],
        metrics={metric: METRICS[metric].text if metric in METRICS else "" for metric in view.metrics},
        targets=_newest_first(drawn, view),
        every=EVERY,
        limits=LIMITS,
        team=team,
        name=name,
    )


@routes.get("/models/<team>/<name>/performance/points")
def performance_points(team: str, name: str) -> Response:
    """The points of charts for scripts, column by column; the page says what the names mean."""
    asked = _asked(team, name)
    view = container().charting.charts(asked.model, asked.query)
    return finish(render({"charts": [document(item) for item in _drawn(asked, view)]}))


def _drawn(asked: Asked, view: ChartsView) -> list[Chart]:
    relative, from_zero = asked.shown_as == "change", asked.shown_as == "zero"
    return [chart(item, view, relative=relative, from_zero=from_zero) for item in view.charts]


def _newest_first(drawn: list[Chart], view: ChartsView) -> list[tuple[str, int, int]]:
    """Targets with colour and pattern: in the order of the first chart, then what that does not show."""
    first = [item.line.series.target for item in drawn[0].standings] if drawn else []
    return [(target, *colour(target, view)) for target in dict.fromkeys((*first, *view.targets))]


def _shown(asked: Asked, drawn: Chart, place: int, many: int) -> Shown:
    most = _ROWS_OF_ONE if many == 1 else _ROWS if place == 0 else _ROWS_OF_MANY
    width, height = _LARGE if place == 0 else _SMALL
    height = round(height * _TALLER) if drawn.is_log else height
    only: dict[str, Any] = {"metric": drawn.view.metric, "batch": drawn.view.batch}
    table = rows(drawn, most)
    more = drawn.points > len(table) or any(line.series.more for line in drawn.lines)
    return Shown(
        drawn,
        plot(drawn, by_time=asked.by == "time", width=width, height=height),
        table,
        _csv(asked, drawn),
        asked.address(**only),
        asked.address("pages.performance_points", **only),
        asked.address(**only, to=table[-1].point.number) if more else None,
    )


def _csv(asked: Asked, drawn: Chart) -> str:
    """The API's CSV of a chart; of one target only where no other was asked for."""
    team, _, name = asked.model.partition("/")
    query = asked.query
    return url_for(
        "performance.history",
        team=team,
        name=name,
        metric=drawn.view.metric,
        subject=query.subject,
        batch=drawn.view.batch,
        target=query.targets[0] if len(query.targets) == 1 else None,
        environment=query.environment,
        before=query.last + 1 if query.last else None,
        limit=min(query.limit, MAX_POINTS),
        format="csv",
    )


def _asked(team: str, name: str) -> Asked:
    given = request.args
    query = ChartQuery(
        metrics=_texts(given, "metric"),
        targets=_texts(given, "target"),
        batch=_batch(),
        subject=given.get("subject") or "artifact",
        environment=given.get("environment") or None,
        first=_version("from"),
        last=_version("to"),
        limit=_limit(),
    )
    if query.first and query.last and query.first > query.last:
        raise InvalidInput(
            f"The first version, {query.first}, comes after the last, {query.last}",
            where="from",
            hint="Swap them, or leave one out.",
        )
    by, shown_as = _one_of(given, "x", _BY), _one_of(given, "y", _SHOWN_AS)
    _check_zoom(given.get("zoom", ""))
    return Asked(f"{team}/{name}", query, by, shown_as, _picked(given))


def _picked(given: MultiDict[str, str]) -> tuple[str, ...]:
    return tuple(choice(*parse_choice(text)) for text in given.getlist("point")[:2])


def _check_zoom(text: str) -> None:
    """Scripts zoom; that their address is sound is said here, so that whoever wrote it hears of it."""
    found = _ZOOM.fullmatch(text)
    if text and not (found and float(found[1]) < float(found[2])):
        raise InvalidInput(
            f"{text[:40]!a} is no part of an axis",
            where="zoom",
            hint=f"Write its two ends, such as 10{BETWEEN}20, or leave zoom out to see all.",
        )


def _texts(given: MultiDict[str, str], name: str) -> tuple[str, ...]:
    found = [text[:200] for text in given.getlist(name) if text]
    return tuple(dict.fromkeys(found))[:_MOST_NAMED]


def _version(where: str) -> int | None:
    hint = "Write a version's number, such as 3, or nothing."
    return in_address(where, 1, MOST_VERSION, what="number of a version", hint=hint)


def _batch() -> int | None:
    return in_address(
        "batch", 1, _MOST_BATCH, what="batch size", hint="Write a whole number from 1 on, or nothing."
    )


def _limit() -> int:
    hint = f"Write how many versions of each line to show, {MOST_POINTS:,} at most, or nothing."
    asked = in_address("limit", 1, MOST_VERSION, what="number of versions", hint=hint)
    return min(asked or _DEFAULT, MOST_POINTS)


def _one_of(given: MultiDict[str, str], name: str, allowed: tuple[str, ...]) -> str:
    text = given.get(name) or allowed[0]
    if text not in allowed:
        raise InvalidInput(
            f"{text[:40]!a} is nothing that charts have on their {name} axis",
            where=name,
            hint=f"Write {' or '.join(allowed)}.",
        )
    return text
