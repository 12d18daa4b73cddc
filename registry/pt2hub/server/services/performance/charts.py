"""Charts of a model's metrics over its versions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub.domain.performance.measurements import NO_BATCH
from pt2hub.domain.performance.metrics import METRICS, SeriesFilter, default_threshold
from pt2hub.server.db.stores.performance.series import HistoryStore, StoredSeries
from pt2hub.server.db.stores.promotion.policies import PolicyStore
from pt2hub.server.services.not_found import require_model
from pt2hub.server.services.performance import missing_measurements
from pt2hub.server.services.performance.history import views
from pt2hub.server.views.charts import ChartsView, ChartView

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.performance.metrics import Threshold
    from pt2hub.server.db.engine import Sessions
    from pt2hub.wire.performance import SeriesView

MAX_CHART_POINTS = 10_000
"""Per series: a chart of so many points is drawn in a tenth of a second."""
ALL_METRICS = "*"
"""Requests every measured metric."""
DEFAULT_METRICS = (
    "latency_p50",
    "throughput",
    "first_inference",
    "first_inference_speedup",
    "load_time",
    "host_memory_peak",
    "device_memory_peak",
    "package_bytes",
    "compile_time",
)
_MAX_SERIES = 5000
_MAX_LINES = 24
_MAX_TOTAL_POINTS = 40_000
"""Points of all charts of one request."""


@dataclass(frozen=True, slots=True)
class ChartQuery:
    """Filters of charts.

    Attributes:
        metrics: Metric names; empty for the first of `DEFAULT_METRICS` that is measured, `ALL_METRICS` for all.
        targets: Only these targets; empty for all.
        batch: Batch size; None for that of the example inputs, if it was measured.
        implementation: `artifact`, or a baseline.
        environment: Digest of the environment class, or a prefix of it.
        limit: Maximum number of versions per series.
    """

    metrics: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    batch: int | None = None
    implementation: str = "artifact"
    environment: str | None = None
    first: int | None = None
    last: int | None = None
    limit: int = 200


class ChartService:
    """Builds charts of models."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def charts(self, model: str, wanted: ChartQuery) -> ChartsView:
        """Return the charts of a model's metrics over its versions.

        Returns:
            A chart per metric that has measurements.

        Raises:
            InvalidInput: The model, implementation or environment class is malformed.
            UnknownTarget: A target's name is malformed.
            UnknownMetric: A metric is unknown; the hint has suggestions.
            NotFound: The model does not exist, or a filter matches no measurements; the hint lists what exists.
        """
        for item in _filters(wanted):
            missing_measurements.check_form(item)
        with self._sessions.begin() as session:
            row = require_model(session, model)
            there = HistoryStore(session).series(row, limit=_MAX_SERIES)
            chosen = _chosen(session, row, there, wanted)
            for item in _unmatched_filters(wanted, chosen, {item.metric for item in there}):
                missing_measurements.check(session, row, model, item)
            charts = _charts(session, row, chosen, wanted)
        return _view(model, there, charts)


def _filters(wanted: ChartQuery) -> list[SeriesFilter]:
    """Return the filters of each requested metric and target, to check them one by one."""
    named = [metric for metric in wanted.metrics if metric != ALL_METRICS]
    return [
        SeriesFilter(metric, wanted.implementation, target, wanted.batch, wanted.environment)
        for metric in named or DEFAULT_METRICS[:1]
        for target in wanted.targets or (None,)
    ]


def _unmatched_filters(
    wanted: ChartQuery, chosen: Iterable[tuple[str, str]], measured: Collection[str]
) -> list[SeriesFilter]:
    """Return the filters that match nothing: metrics that the model lacks, or all filters if there is no chart.

    If other charts are drawn, a metric that was only measured on other targets or of baselines is not an error.
    """
    drawn = {metric for metric, _ in chosen}
    return [
        item for item in _filters(wanted) if not drawn or (wanted.metrics and item.metric not in measured)
    ]


def _chosen(
    session: Session, model_id: int, there: Sequence[StoredSeries], wanted: ChartQuery
) -> dict[tuple[str, str], list[StoredSeries]]:
    """Return the lines of each chart by metric and unit, at one batch size per chart."""
    example = HistoryStore(session).example_batches([model_id]).get(model_id)
    kept = [item for item in there if _is_wanted(item, wanted)]
    found: dict[tuple[str, str], list[StoredSeries]] = {}
    for metric in _metrics(kept, wanted):
        same = [item for item in kept if item.metric == metric]
        batch = _batch({item.batch for item in same}, wanted.batch, example)
        for item in same:
            if item.batch == batch:
                found.setdefault((metric, item.unit), []).append(item)
    return found


def _is_wanted(item: StoredSeries, wanted: ChartQuery) -> bool:
    return (
        item.implementation == wanted.implementation
        and (not wanted.targets or item.target in wanted.targets)
        and item.class_digest.startswith(wanted.environment or "")
    )


def _metrics(kept: Iterable[StoredSeries], wanted: ChartQuery) -> list[str]:
    measured = _order_metrics({item.metric for item in kept})
    if ALL_METRICS in wanted.metrics:
        return measured
    if wanted.metrics:
        return [metric for metric in dict.fromkeys(wanted.metrics) if metric in measured]
    return ([metric for metric in DEFAULT_METRICS if metric in measured] or measured)[:1]


def _order_metrics(metrics: Iterable[str]) -> list[str]:
    known = {name: index for index, name in enumerate(METRICS)}
    return sorted(metrics, key=lambda name: (known.get(name, len(known)), name))


def _batch(measured: set[int], requested: int | None, example: int | None) -> int | None:
    """Return the batch size of a chart; None where the requested one was not measured."""
    sizes = measured - {NO_BATCH}
    if not sizes:
        return NO_BATCH
    if requested is not None:
        return requested if requested in sizes else None
    return example if example in sizes else min(sizes)


def _charts(
    session: Session, model_id: int, chosen: dict[tuple[str, str], list[StoredSeries]], wanted: ChartQuery
) -> tuple[ChartView, ...]:
    lines = {key: found[:_MAX_LINES] for key, found in chosen.items()}
    rows = [item for found in lines.values() for item in found]
    before = None if wanted.last is None else wanted.last + 1
    limit = min(wanted.limit, max(1, _MAX_TOTAL_POINTS // max(1, len(rows))))
    shown = views(session, rows, before, limit)
    thresholds = PolicyStore(session).thresholds(model_id)
    made = (
        _chart(
            [item for item in shown if (item.metric, item.unit) == key],
            thresholds.get(key[0]) or default_threshold(key[0]),
            wanted,
            more=len(chosen[key]) > _MAX_LINES,
        )
        for key in lines
    )
    return tuple(chart for chart in made if chart)


def _chart(
    found: Sequence[SeriesView], threshold: Threshold, wanted: ChartQuery, *, more: bool
) -> ChartView | None:
    lines = sorted((_from(item, wanted.first) for item in found if item.points), key=lambda item: item.target)
    lines = [item for item in lines if item.points]
    if not lines:
        return None
    one = lines[0]
    known = METRICS.get(one.metric)
    text = known.text if known else ""
    return ChartView(
        one.metric, text, one.unit, threshold.better, one.batch, one.implementation, tuple(lines), more=more
    )


def _from(series: SeriesView, first: int | None) -> SeriesView:
    """Return a series without versions before `first`; its noise still covers all of them."""
    if first is None:
        return series
    return replace(
        series,
        points=tuple(point for point in series.points if point.number >= first),
        changes=tuple(change for change in series.changes if change.number >= first),
    )


def _view(model: str, there: Sequence[StoredSeries], charts: tuple[ChartView, ...]) -> ChartsView:
    return ChartsView(
        model,
        charts,
        metrics=tuple(_order_metrics({item.metric for item in there})),
        targets=tuple(sorted({item.target for item in there})),
        batches=tuple(sorted({item.batch for item in there} - {NO_BATCH})),
        implementations=tuple(
            sorted({item.implementation for item in there}, key=lambda name: (name != "artifact", name))
        ),
    )
