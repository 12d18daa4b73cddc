"""Charts of a model: which metrics, at which batch size, with which lines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub.domain.measurements import NO_BATCH
from pt2hub.domain.performance import METRICS, SeriesFilter, default_threshold
from pt2hub.server.db.stores.histories import HistoryStore, StoredSeries
from pt2hub.server.db.stores.policies import PolicyStore
from pt2hub.server.services import unmeasured
from pt2hub.server.services.performance import model_row, views
from pt2hub.wire.charts import ChartsView, ChartView

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.performance import Threshold
    from pt2hub.server.db.engine import Sessions
    from pt2hub.wire.performance import SeriesView

MOST_POINTS = 10_000
"""Of each series: a chart of so many is drawn in a tenth of a second."""
EVERY = "*"
"""Asks for every metric that is measured."""
USUAL = (
    "latency_p50",
    "throughput",
    "first_inference",
    "load_time",
    "host_memory_peak",
    "device_memory_peak",
    "package_bytes",
    "compile_time",
)
"""Metrics that are shown where none is named."""
_MOST_SERIES = 5000
_MOST_LINES = 24
_MOST_IN_ALL = 40_000
"""Points of all charts together, so that one page cannot ask for a million of them."""


@dataclass(frozen=True, slots=True)
class ChartQuery:
    """Which charts.

    Attributes:
        metrics: These; the usual ones where none is named, all for `EVERY`.
        targets: Lines of these targets; of all where none is named.
        batch: At this size; of the example inputs where it is None and there are such figures.
        subject: `artifact`, or what ran beside it.
        environment: The environment class's digest, or its beginning.
        first: Versions from this number on.
        last: Versions up to this number.
        limit: At most so many versions of each series.
    """

    metrics: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    batch: int | None = None
    subject: str = "artifact"
    environment: str | None = None
    first: int | None = None
    last: int | None = None
    limit: int = 200


class ChartingService:
    """Charts of models."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions

    def charts(self, model: str, wanted: ChartQuery) -> ChartsView:
        """What moved, and how, over a model's versions.

        Args:
            model: The model's name.
            wanted: Which charts.

        Returns:
            A chart for each metric that has figures; none where nothing was measured yet.

        Raises:
            InvalidInput: A text is no model's name, no subject or no environment class.
            UnknownTarget: A target's name has another form.
            UnknownMetric: Nobody knows a metric, near names are in the hint.
            NotFound: There is no such model, or nothing was measured on a target, at the batch, of the subject or in
                the environment; what there is is in the hint.
        """
        for item in _filters(wanted):
            unmeasured.check_form(item)
        with self._sessions.begin() as session:
            row = model_row(session, model)
            there = HistoryStore(session).series(row, limit=_MOST_SERIES)
            chosen = _chosen(session, row, there, wanted)
            for item in _without(wanted, chosen, {item.metric for item in there}):
                unmeasured.check(session, row, model, item)
            charts = _charts(session, row, chosen, wanted)
        return _view(model, there, charts)


def _filters(wanted: ChartQuery) -> list[SeriesFilter]:
    """Each metric and target that was named, as the history knows filters; to check them one by one."""
    named = [metric for metric in wanted.metrics if metric != EVERY]
    return [
        SeriesFilter(metric, wanted.subject, target, wanted.batch, wanted.environment)
        for metric in named or USUAL[:1]
        for target in wanted.targets or (None,)
    ]


def _without(
    wanted: ChartQuery, chosen: Iterable[tuple[str, str]], measured: Collection[str]
) -> list[SeriesFilter]:
    """What was named and is nowhere: metrics that the model has not, or anything where there is no chart at all.

    Where others are drawn, a metric that was measured on other targets only, or of what ran beside, is no mistake:
    who chose many metrics leaves out a target.
    """
    drawn = {metric for metric, _ in chosen}
    return [
        item for item in _filters(wanted) if not drawn or (wanted.metrics and item.metric not in measured)
    ]


def _chosen(
    session: Session, model_id: int, there: Sequence[StoredSeries], wanted: ChartQuery
) -> dict[tuple[str, str], list[StoredSeries]]:
    """The lines of each chart, by metric and unit; those of a chart are at one batch size."""
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
        item.subject == wanted.subject
        and (not wanted.targets or item.target in wanted.targets)
        and item.class_digest.startswith(wanted.environment or "")
    )


def _metrics(kept: Iterable[StoredSeries], wanted: ChartQuery) -> list[str]:
    measured = _ordered({item.metric for item in kept})
    if EVERY in wanted.metrics:
        return measured
    if wanted.metrics:
        return [metric for metric in dict.fromkeys(wanted.metrics) if metric in measured]
    return [metric for metric in USUAL if metric in measured] or measured[:4]


def _ordered(metrics: Iterable[str]) -> list[str]:
    known = {name: place for place, name in enumerate(METRICS)}
    return sorted(metrics, key=lambda name: (known.get(name, len(known)), name))


def _batch(there: set[int], asked: int | None, example: int | None) -> int | None:
    """The batch size of a chart; None where there is nothing at the one that was asked for."""
    sizes = there - {NO_BATCH}
    if not sizes:
        return NO_BATCH
    if asked is not None:
        return asked if asked in sizes else None
    return example if example in sizes else min(sizes)


def _charts(
    session: Session, model_id: int, chosen: dict[tuple[str, str], list[StoredSeries]], wanted: ChartQuery
) -> tuple[ChartView, ...]:
    lines = {place: found[:_MOST_LINES] for place, found in chosen.items()}
    rows = [item for found in lines.values() for item in found]
    before = None if wanted.last is None else wanted.last + 1
    limit = min(wanted.limit, max(1, _MOST_IN_ALL // max(1, len(rows))))
    shown = views(session, rows, before, limit)
    thresholds = PolicyStore(session).thresholds(model_id)
    made = (
        _chart(
            [item for item in shown if (item.metric, item.unit) == place],
            thresholds.get(place[0]) or default_threshold(place[0]),
            wanted,
            more=len(chosen[place]) > _MOST_LINES,
        )
        for place in lines
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
        one.metric, text, one.unit, threshold.better, one.batch, one.subject, tuple(lines), more=more
    )


def _from(series: SeriesView, first: int | None) -> SeriesView:
    """A series without what is older; what noise is usual is still said by all of it."""
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
        metrics=tuple(_ordered({item.metric for item in there})),
        targets=tuple(sorted({item.target for item in there})),
        batches=tuple(sorted({item.batch for item in there} - {NO_BATCH})),
        subjects=tuple(sorted({item.subject for item in there}, key=lambda name: (name != "artifact", name))),
    )
