"""Performance page of a model: a chart and a table for each metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from flask import request, url_for

from pt2hub.domain.performance.metrics import METRICS
from pt2hub.errors import InvalidInput
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_VERSION, query_number
from pt2hub.server.pages.performance.charts import Chart, chart, colour
from pt2hub.server.pages.performance.measurement_table import Row, rows
from pt2hub.server.pages.performance.points import document
from pt2hub.server.pages.templates import page
from pt2hub.server.services.performance.charts import ALL_METRICS, MAX_CHART_POINTS, ChartQuery
from pt2hub.server.services.performance.history import MAX_POINTS

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.datastructures import MultiDict

    from pt2hub.server.views.charts import ChartsView

LIMITS = (50, 200, 1000, MAX_CHART_POINTS)
"""Numbers of versions that the form offers."""
_DEFAULT = 200
_MAX_BATCH = 2**63 - 1
_MAX_VALUES = 50
_ROWS, _ROWS_OF_MANY, _ROWS_OF_ONE = 40, 10, 200
"""Table rows below the first of several charts, below the others, and below a single one."""
_BY = ("version", "time")
_SHOWN_AS = ("value", "zero", "change")


@dataclass(frozen=True, slots=True)
class ChartSection:
    """A chart with its table.

    Attributes:
        points: Data for the script that draws it.
        rows: The newest rows of its table.
        csv: URL of its data as CSV.
        alone: URL of the page with this chart alone.
        older: URL of the page with older versions, None at the end.
    """

    chart: Chart
    points: dict[str, Any]
    rows: list[Row]
    csv: str
    alone: str
    older: str | None


@dataclass(frozen=True, slots=True)
class PerformanceQuery:
    """Query of the performance page.

    Attributes:
        by: The x axis: `version` or `time`.
        shown_as: The y axis: `value`, `zero` (values from zero) or `change`.
    """

    model: str
    charts: ChartQuery
    by: str
    shown_as: str

    def address(self, **other: Any) -> str:
        """Return the URL of this page with changed parameters; None removes one."""
        query = self.charts
        values = {
            "metric": query.metrics,
            "target": query.targets,
            "batch": query.batch,
            "implementation": None if query.implementation == "artifact" else query.implementation,
            "environment": query.environment,
            "from": query.first,
            "to": query.last,
            "limit": None if query.limit == _DEFAULT else query.limit,
            "x": None if self.by == _BY[0] else self.by,
            "y": None if self.shown_as == _SHOWN_AS[0] else self.shown_as,
        }
        team, _, name = self.model.partition("/")
        given = {name: value for name, value in (values | other).items() if value not in (None, ())}
        suffix = f"?{urlencode(given, doseq=True)}" if given else ""
        return url_for("pages.performance", team=team, name=name) + suffix


@routes.get("/models/<team>/<name>/performance")
def performance(team: str, name: str) -> Response:
    """Show a model's measurements over its versions."""
    query = _parse_query(team, name)
    view = container().charts.charts(query.model, query.charts)
    drawn = [chart(item, view, query.shown_as) for item in view.charts]
    return page(
        "performance.html",
        section="models",
        query=query,
        view=view,
        shown=[_chart_section(query, item, index, len(drawn)) for index, item in enumerate(drawn)],
        metrics={metric: METRICS[metric].text if metric in METRICS else "" for metric in view.metrics},
        targets=_newest_first(drawn, view),
        every=ALL_METRICS,
        limits=LIMITS,
        usual=_DEFAULT,
        team=team,
        name=name,
    )


def _newest_first(drawn: list[Chart], view: ChartsView) -> list[tuple[str, int, int]]:
    """Return the targets with colour and pattern: in the order of the first chart, then all others."""
    first = [item.line.series.target for item in drawn[0].trends] if drawn else []
    return [(target, *colour(target, view)) for target in dict.fromkeys((*first, *view.targets))]


def _chart_section(query: PerformanceQuery, drawn: Chart, index: int, count: int) -> ChartSection:
    limit = _ROWS_OF_ONE if count == 1 else _ROWS if index == 0 else _ROWS_OF_MANY
    only: dict[str, Any] = {"metric": drawn.view.metric, "batch": drawn.view.batch}
    table = rows(drawn, limit)
    more = drawn.points > len(table) or any(line.series.more for line in drawn.lines)
    return ChartSection(
        drawn,
        document(drawn, by_time=query.by == "time"),
        table,
        _csv(query, drawn),
        query.address(**only),
        query.address(**only, to=table[-1].point.number) if more else None,
    )


def _csv(query: PerformanceQuery, drawn: Chart) -> str:
    """Return the API's CSV of a chart; of one target only where no other was query for."""
    team, _, name = query.model.partition("/")
    charts = query.charts
    return url_for(
        "performance.history",
        team=team,
        name=name,
        metric=drawn.view.metric,
        implementation=charts.implementation,
        batch=drawn.view.batch,
        target=charts.targets[0] if len(charts.targets) == 1 else None,
        environment=charts.environment,
        before=charts.last + 1 if charts.last else None,
        limit=min(charts.limit, MAX_POINTS),
        format="csv",
    )


def _parse_query(team: str, name: str) -> PerformanceQuery:
    given = request.args
    query = ChartQuery(
        metrics=_texts(given, "metric"),
        targets=_texts(given, "target"),
        batch=_batch(),
        implementation=given.get("implementation") or "artifact",
        environment=given.get("environment") or None,
        first=_version("from"),
        last=_version("to"),
        limit=_limit(),
    )
    if query.first and query.last and query.first > query.last:
        raise InvalidInput(
            f"First version {query.first} is after last version {query.last}",
            where="from",
            hint="Swap them or remove one.",
        )
    return PerformanceQuery(f"{team}/{name}", query, _one_of(given, "x", _BY), _one_of(given, "y", _SHOWN_AS))


def _texts(given: MultiDict[str, str], name: str) -> tuple[str, ...]:
    found = [text[:200] for text in given.getlist(name) if text]
    return tuple(dict.fromkeys(found))[:_MAX_VALUES]


def _version(where: str) -> int | None:
    hint = "Enter a version number, such as 3, or leave it empty."
    return query_number(where, 1, MAX_VERSION, what="version number", hint=hint)


def _batch() -> int | None:
    return query_number(
        "batch", 1, _MAX_BATCH, what="batch size", hint="Enter a whole number from 1, or leave it empty."
    )


def _limit() -> int:
    hint = f"Enter the number of versions per line, at most {MAX_CHART_POINTS:,}, or leave it empty."
    query = query_number("limit", 1, MAX_VERSION, what="number of versions", hint=hint)
    return min(query or _DEFAULT, MAX_CHART_POINTS)


def _one_of(given: MultiDict[str, str], name: str, allowed: tuple[str, ...]) -> str:
    text = given.get(name) or allowed[0]
    if text not in allowed:
        raise InvalidInput(
            f"Invalid {name} axis {text[:40]!a}",
            where=name,
            hint=f"Must be {' or '.join(allowed)}.",
        )
    return text
