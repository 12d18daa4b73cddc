"""Performance page of a model: a chart and a table for each metric."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from flask import request, url_for

from pt2hub.domain.performance.metrics import METRICS
from pt2hub.errors import InvalidInput
from pt2hub.rendering.comparison_answers import Answer
from pt2hub.rendering.targets import short_target
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_VERSION, query_number
from pt2hub.server.pages.performance.charts import Chart, Trend, chart, colour, split
from pt2hub.server.pages.performance.measurement_table import Row, rows
from pt2hub.server.pages.performance.points import document, find_span, strip
from pt2hub.server.pages.performance.trend_answers import answer_trends
from pt2hub.server.pages.templates import page
from pt2hub.server.services.performance.charts import (
    ALL_METRICS,
    DEFAULT_METRICS,
    MAX_CHART_POINTS,
    ChartQuery,
)
from pt2hub.server.services.performance.history import MAX_POINTS
from pt2hub.server.services.performance.version_changes import PRODUCTION

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
_SHOWN_AS = ("value", "zero", "change", "shared")
_OWN_AXES = _SHOWN_AS[:2]
"""How values are shown where each target has a chart of its own."""
_MAX_PANELS = 12
"""Charts of single targets in a section."""
_MAX_PANELS_OF_ALL = 48
_MIN_PANELS = 2
_MAX_STRIP = 1000
"""Versions of the strip that chooses a range."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A target of a section, with a chart of its own or as a line of a shared one.

    Attributes:
        points: Data of its own chart, None where it is a line of a shared one.
    """

    trend: Trend
    points: dict[str, Any] | None
    summary: str


@dataclass(frozen=True, slots=True)
class ChartSection:
    """A metric: its charts and its table.

    Attributes:
        answer: What changed, in words.
        panels: Its targets, the most recently measured first.
        others: Targets beyond these, each with the URL of its chart.
        points: Data of the chart that all targets share, None where each has its own.
        rows: The newest rows of its table.
        csv: URL of its data as CSV.
        alone: URL of the page with this metric alone.
        older: URL of the page with older versions, None at the end.
    """

    chart: Chart
    answer: Answer
    panels: list[Panel]
    others: list[tuple[str, str]]
    points: dict[str, Any] | None
    rows: list[Row]
    csv: str
    alone: str
    older: str | None


@dataclass(frozen=True, slots=True)
class PerformanceQuery:
    """Query of the performance page.

    Attributes:
        by: The x axis: `version` or `time`.
        shown_as: The y axis: `value` or `zero` (values from zero) with a chart for each target, `change` or `shared` with
            one chart for all.
        base: The version that changes are relative to; None for the production alias's.
    """

    model: str
    charts: ChartQuery
    by: str
    shown_as: str
    base: int | None = None

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
            "base": self.base,
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
    base = _base_version(query)
    drawn = [chart(item, view, query.shown_as, base) for item in view.charts]
    return page(
        "performance.html",
        section="models",
        query=query,
        base=base,
        view=view,
        is_ready=bool(view.metrics or container().catalog.model(view.model).newest_ready),
        strip=_strip(query, drawn),
        shown=[_chart_section(query, view, item, index, len(drawn)) for index, item in enumerate(drawn)],
        tabs=_tabs(query, view, drawn),
        metrics={metric: METRICS[metric].text if metric in METRICS else "" for metric in view.metrics},
        targets=_newest_first(drawn, view),
        every=ALL_METRICS,
        limits=LIMITS,
        usual=_DEFAULT,
        team=team,
        name=name,
    )


def _base_version(query: PerformanceQuery) -> int | None:
    """Return the version that changes are relative to: the chosen one, else that in production."""
    if query.base is not None or query.shown_as != "change":
        return query.base
    aliases = container().catalog.model(query.model).aliases
    return next((aliases[name] for name in sorted(aliases) if name.startswith(PRODUCTION)), None)


def _tabs(query: PerformanceQuery, view: ChartsView, drawn: list[Chart]) -> list[tuple[str, str, bool]]:
    """Return links to the usual metrics, those that are shown among them."""
    shown = {item.view.metric for item in drawn}
    known = [metric for metric in view.metrics if metric in DEFAULT_METRICS or metric in shown]
    alone = len(drawn) == 1
    batch = {"batch": query.charts.batch}
    tabs = [(metric, query.address(metric=metric, **batch), alone and metric in shown) for metric in known]
    if len(view.metrics) > 1:
        tabs.append(("all metrics", query.address(metric=ALL_METRICS), ALL_METRICS in query.charts.metrics))
    return tabs


def _strip(query: PerformanceQuery, drawn: list[Chart]) -> dict[str, Any] | None:
    """Return the newest target's line over all versions, None where there is nothing to choose from."""
    if not drawn:
        return None
    first, line = drawn[0], drawn[0].trends[0].line
    chosen = query.charts.first, query.charts.last
    if any(chosen):
        only = replace(
            query.charts,
            metrics=(line.series.metric,),
            targets=(line.series.target,),
            batch=first.view.batch,
            first=None,
            last=None,
            limit=_MAX_STRIP,
        )
        whole = container().charts.charts(query.model, only)
        line = chart(whole.charts[0], whole).trends[0].line
    return strip(line, *chosen) if len(line.series.points) > 1 else None


def _newest_first(drawn: list[Chart], view: ChartsView) -> list[tuple[str, int, int]]:
    """Return the targets with colour and pattern: in the order of the first chart, then all others."""
    first = [item.line.series.target for item in drawn[0].trends] if drawn else []
    return [(target, *colour(target, view)) for target in dict.fromkeys((*first, *view.targets))]


def _chart_section(
    query: PerformanceQuery, view: ChartsView, drawn: Chart, index: int, count: int
) -> ChartSection:
    limit = _ROWS_OF_ONE if count == 1 else _ROWS if index == 0 else _ROWS_OF_MANY
    only: dict[str, Any] = {"metric": drawn.view.metric, "batch": drawn.view.batch}
    table = rows(drawn, limit)
    more = drawn.points > len(table) or any(line.series.more for line in drawn.lines)
    most = min(_MAX_PANELS, max(_MIN_PANELS, _MAX_PANELS_OF_ALL // count))
    panels = _panels(query, view, drawn, most)
    names = [trend.line.series.target for trend in drawn.trends[most:]]
    return ChartSection(
        drawn,
        answer_trends(drawn),
        panels,
        [(short_target(target, names), query.address(target=target, **only)) for target in names],
        None if query.shown_as in _OWN_AXES else document(drawn, by_time=query.by == "time"),
        table,
        _csv(query, drawn),
        query.address(**only),
        query.address(**only, to=table[-1].point.number) if more else None,
    )


def _panels(query: PerformanceQuery, view: ChartsView, drawn: Chart, most: int) -> list[Panel]:
    # The most recently measured ones; regressions, the newest first, stand before all others.
    trends = sorted(drawn.trends[:most], key=lambda trend: -_regressed_at(trend))
    if query.shown_as not in _OWN_AXES:
        return [Panel(trend, None, "") for trend in trends]
    by_time = query.by == "time"
    split_charts = split(drawn.view, view, query.shown_as)
    charts = [split_charts[trend.line.series.target] for trend in trends]
    span = find_span(charts, by_time=by_time)
    return [
        Panel(trend, document(item, by_time=by_time, span=span), item.summary)
        for trend, item in zip(trends, charts, strict=True)
    ]


def _regressed_at(trend: Trend) -> int:
    """Return the version since which a target is worse, 0 where it is not."""
    return trend.mark.point.number if trend.mark and trend.mark.word == "worse" else 0


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
    shown_as = _one_of(given, "y", _SHOWN_AS)
    return PerformanceQuery(f"{team}/{name}", query, _one_of(given, "x", _BY), shown_as, _version("base"))


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
