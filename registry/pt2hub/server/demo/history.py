"""The rows of the performance history: figures, what charts read of them, and the changes that are flagged.

Verdicts and change points come from the functions that find them in real figures: a later look finds the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest, digest_json
from pt2hub.domain.measurements import environment_class
from pt2hub.domain.performance import METRICS, default_threshold
from pt2hub.server.analysis.changes import change_points
from pt2hub.server.analysis.judging import judge_exact, judge_paired, judge_single
from pt2hub.server.db.stores.performance import Measured, What, what_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.artifacts import Environment
    from pt2hub.domain.measurements import MeasurementRun
    from pt2hub.domain.performance import Judgement
    from pt2hub.server.demo.rows import Rows

_UNWATCHED = frozenset(("fetch_time", "export_time", "key_time", "reuse_time", "pack_time", "verify_time"))
"""As in `services.examining`: of these nobody is told."""
_SOON = timedelta(seconds=4)
"""A change is found so soon after it was measured."""
_LATER = 2
"""Values of a new level before it is one: a change point is found with the third."""


@dataclass(slots=True)
class _Point:
    """What a series says of a version."""

    artifact: str
    at: datetime
    runs: list[tuple[datetime, float]] = field(default_factory=list)
    reports: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)

    @property
    def value(self) -> float:
        """That of its latest run; the median of its reports where there are no runs."""
        return max(self.runs)[1] if self.runs else median(self.reports)


@dataclass(slots=True)
class _Series:
    """A series with its points by version."""

    id: int
    points: dict[int, _Point] = field(default_factory=dict)
    ratios: dict[int, tuple[int, list[list[float]]]] = field(default_factory=dict)

    def take(self, of: Measured, value: float, replicates: list[float] | None, at: datetime) -> None:
        """Takes a figure of a run."""
        point = self._point(of, value, at)
        point.runs.append((at, value))
        point.spread += replicates or ()

    def take_report(self, of: Measured, value: float, at: datetime) -> None:
        """Takes a figure that somebody reported."""
        self._point(of, value, at).reports.append(value)

    def _point(self, of: Measured, value: float, at: datetime) -> _Point:
        point = self.points.setdefault(of.number, _Point(of.artifact, at))
        point.at = max(point.at, at)
        point.spread.append(value)
        return point

    @property
    def ordered(self) -> list[tuple[int, _Point]]:
        """Its points, oldest first."""
        return sorted(self.points.items())


class History:
    """Gathers figures, and writes them with everything that follows from them."""

    def __init__(self, rows: Rows, now: datetime) -> None:
        """Is empty.

        Args:
            rows: Takes the rows.
            now: When all of it was looked through.
        """
        self._rows = rows
        self._now = now
        self._series: dict[What, _Series] = {}
        self.environments: dict[str, Environment] = {}
        self._classes: dict[Environment, tuple[Digest, Digest]] = {}

    def environment(self, environment: Environment) -> tuple[Digest, Digest]:
        """Digest of an environment, and of its class."""
        if environment not in self._classes:
            fields = {name: value for name, value in encode(environment).items() if value is not None}
            self._classes[environment] = digest_json(fields), environment_class(environment)
            self.environments[self._classes[environment][0]] = environment
        return self._classes[environment]

    def add(self, run: MeasurementRun, own: Measured, baseline: Measured | None) -> None:
        """Takes the figures of a run.

        Args:
            run: The figures.
            own: What it is of.
            baseline: What ran beside it.
        """
        environment, in_class = self.environment(run.environment)
        at = datetime.fromisoformat(run.measured_at)
        shared = {"environment": environment, "source": run.source, "run": run.id, "measured_at": at}
        for of, items in ((own, run.measurements), (baseline, run.beside)):
            for item in items if of else ():
                assert of is not None, "what has figures is known"
                series = self._of(what_of(of, in_class, item))
                series.take(of, item.value, item.replicates, at)
                self._figure(series, of, item.value, item.replicates, item.samples, shared)
        for pair in run.pairs if baseline else ():
            assert baseline is not None, "pairs have a baseline"
            series = self._of(what_of(own, in_class, pair))
            series.ratios.setdefault(own.number, (baseline.number, []))[1].append(pair.ratios)
            self._rows.add(
                "measurement_pairs",
                id=self._rows.new_id("measurement_pairs"),
                series_id=series.id,
                artifact=own.artifact,
                baseline=baseline.artifact,
                run=run.id,
                ratios=pair.ratios,
                measured_at=at,
            )

    def report(self, what: What, of: Measured, value: float, at: datetime, told: dict[str, Any]) -> None:
        """Takes a figure that somebody reported.

        Args:
            what: Its series.
            of: Its artifact.
            value: The figure.
            at: When it was taken.
            told: `environment`, `reporter` and `key`.
        """
        series = self._of(what)
        series.take_report(of, value, at)
        self._figure(series, of, value, None, None, {"source": "report", "measured_at": at, **told})

    def _figure(  # a row has that many parts
        self,
        series: _Series,
        of: Measured,
        value: float,
        replicates: list[float] | None,
        samples: list[Any] | None,
        shared: dict[str, Any],
    ) -> None:
        self._rows.add(
            "measurements",
            series_id=series.id,
            number=of.number,
            artifact=of.artifact,
            environment=shared["environment"],
            source=shared["source"],
            run=shared.get("run"),
            reporter=shared.get("reporter"),
            key=shared.get("key"),
            value=value,
            replicates=replicates,
            samples=samples,
            measured_at=shared["measured_at"],
            received_at=shared["measured_at"],
        )

    def write(self) -> None:
        """Writes series, points and events."""
        for what, series in self._series.items():
            self._write_series(what, series)
            for event in self._events(what, series):
                self._rows.add("performance_events", **event)

    def _of(self, what: What) -> _Series:
        if what not in self._series:
            self._series[what] = _Series(self._rows.new_id("series"))
        return self._series[what]

    def _write_series(self, what: What, series: _Series) -> None:
        newest = max(point.at for point in series.points.values())
        self._rows.add(
            "series",
            id=series.id,
            **what._asdict(),
            changed_at=self._now,
            examined_at=self._now,
            newest_at=newest,
        )
        for number, point in series.points.items():
            self._rows.add(
                "series_points",
                series_id=series.id,
                number=number,
                artifact=point.artifact,
                value=point.value,
                low=min(point.spread),
                high=max(point.spread),
                count=len(point.runs) + len(point.reports),
                measured_at=point.at,
            )

    def _events(self, what: What, series: _Series) -> Iterator[dict[str, Any]]:
        threshold = default_threshold(what.metric)
        if what.subject != "artifact" or what.metric in _UNWATCHED or threshold.better is None:
            return
        for number, before, judged in _judged(what, series):
            if judged.verdict in ("better", "worse"):
                told = {
                    "verdict": judged.verdict,
                    "ratio": judged.ratio,
                    "low": judged.low,
                    "high": judged.high,
                }
                at = series.points[number].at
                yield _event(
                    what, series, "comparison", (number, before), at, {**told, "method": judged.method}
                )
        ordered = series.ordered
        for change in change_points([point.value for _, point in ordered], threshold):
            worse = (change.ratio > 1) == (threshold.better == "lower")
            told = {
                "verdict": "worse" if worse else "better",
                "ratio": change.ratio,
                "low": None,
                "high": None,
            }
            seen = ordered[min(change.at + _LATER, len(ordered) - 1)][1].at
            numbers = (ordered[change.at][0], ordered[change.at - 1][0])
            yield _event(what, series, "change_point", numbers, seen, {**told, "method": "series"})


def _judged(what: What, series: _Series) -> Iterator[tuple[int, int, Judgement]]:
    """What neighbours of a series say: by their pairs, by what is usual there, or by sizes that have no noise."""
    threshold = default_threshold(what.metric)
    for number, (before, runs) in series.ratios.items():
        # What is far below the least effect is not told in any case, and asking costs time.
        if any(abs(math.log(fmean(ratios))) > math.log1p(threshold.min_effect) / 2 for ratios in runs):
            yield number, before, min((judge_paired(each, threshold) for each in runs), key=_width)
    ordered = series.ordered
    values = [point.value for _, point in ordered]
    for at in range(1, len(ordered)) if what.metric == "relative_error" else ():
        judged = judge_single(values[at - 1], values[at], values[: at - 1], threshold)
        yield ordered[at][0], ordered[at - 1][0], judged
    if METRICS[what.metric].exact if what.metric in METRICS else False:
        for (before, old), (number, new) in pairwise(series.ordered):
            yield number, before, judge_exact(old.value, new.value, threshold)


def _width(judged: Judgement) -> float:
    """Of its interval: of several runs the narrowest is believed, as `services.evidence` does."""
    if judged.low is None or judged.high is None:
        return math.inf
    return math.log(judged.high) - math.log(judged.low)


def _event(  # a row has that many parts
    what: What,
    series: _Series,
    kind: str,
    numbers: tuple[int, int],
    at: datetime,
    told: dict[str, Any],
) -> dict[str, Any]:
    return {
        "series_id": series.id,
        "model_id": what.model_id,
        "kind": kind,
        "number": numbers[0],
        "before": numbers[1],
        "at": at + _SOON,
        **told,
    }
