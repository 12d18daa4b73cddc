"""Where charts put figures, and what their axes say: also of figures that no sensible model has."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from pt2hub.domain.digests import Digest
from pt2hub.server.pages.charts import Chart, chart
from pt2hub.server.pages.plots import Plot, plot
from pt2hub.wire.charts import ChartsView, ChartView
from pt2hub.wire.performance import PointView, SeriesView

TARGET = "torch2.13-cpu-x86_64_v4"
DIGEST = Digest("sha256:" + "0" * 64)
BEGIN = datetime(2026, 3, 28, 12, tzinfo=UTC)
"""Half a day before summer time begins in Europe."""
HEIGHT, TOP, BOTTOM = 280, 20, 236
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def drawn(
    *values: float,
    every: timedelta = HOUR,
    low: float | None = None,
    relative: bool = False,
    from_zero: bool = False,
    by_time: bool = True,
) -> Plot:
    """A chart of versions with these figures, measured one after the other."""
    points = [
        PointView(
            at + 1, DIGEST, value, value if low is None else low, value, 1, (BEGIN + at * every).isoformat()
        )
        for at, value in enumerate(values)
    ]
    series = SeriesView("metric", "widgets", TARGET, "artifact", DIGEST, {}, noise=0.05, points=tuple(points))
    view = ChartView("metric", "", "widgets", "lower", None, "artifact", (series,))
    whole = ChartsView("team/name", (view,), ("metric",), (TARGET,), (), ("artifact",))
    drawn = chart(view, whole, relative=relative, from_zero=from_zero)
    return plot(drawn, by_time=by_time, height=HEIGHT)


def moved(*environments: dict[str, str], reported: int = 0) -> Chart:
    """A chart of a model whose machine changed with each version; of the last ones the figures are reports."""
    series = tuple(
        SeriesView(
            "metric",
            "ms",
            TARGET,
            "artifact",
            DIGEST,
            environment,
            points=(PointView(at + 1, DIGEST, 5.0, 5.0, 5.0, 1, (BEGIN + at * DAY).isoformat()),),
            reported=at >= len(environments) - reported,
        )
        for at, environment in enumerate(environments)
    )
    view = ChartView("metric", "", "ms", "lower", None, "artifact", series)
    whole = ChartsView("team/name", (view,), ("metric",), (TARGET,), (), ("artifact",))
    return chart(view, whole)


def by_version(chart: Chart) -> Plot:
    """A chart with versions below it."""
    return plot(chart, by_time=False, height=HEIGHT)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([5.0], ["4.6", "4.8", "5", "5.2", "5.4"]),
        ([5.0, 5.0, 5.0], ["4.6", "4.8", "5", "5.2", "5.4"]),
        ([0.0, 0.0], ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]),
        ([0.0, 9.0], ["0", "2", "4", "6", "8"]),
        ([-1.0, 0.0, 1.0], ["-1", "-0.5", "0", "0.5", "1"]),
        ([1e-12, 2e-12], ["1.00e-12", "1.20e-12", "1.40e-12", "1.60e-12", "1.80e-12", "2.00e-12"]),
        ([1.0, 10.0, 100.0], ["1", "2", "5", "10", "20", "50", "100"]),
        ([-1e308, 1e308], ["-1.000e+300", "-5.000e+299", "0", "5.000e+299", "1.000e+300"]),
    ],
)
def test_an_axis_has_round_figures_around_what_is_drawn(values: list[float], ticks: list[str]) -> None:
    shown = drawn(*values)
    assert [tick.text for tick in shown.up] == ticks
    places = [float(place) for place in re.findall(r",([\d.]+)", shown.lines[0].path)]
    assert len(places) == len(values)
    assert all(TOP <= place <= BOTTOM for place in places)
    assert all(box.height >= 1 for box in shown.lines[0].bands)


def test_of_figures_below_zero_there_is_a_band_but_no_percentage() -> None:
    shown = drawn(-10.0, -9.5, relative=True)
    assert [tick.text for tick in shown.up] == ["-10.5", "-10", "-9.5", "-9"]
    (band,) = shown.lines[0].bands
    assert band.height > 10


def test_a_run_of_zero_reaches_to_the_lower_edge_of_a_logarithmic_axis() -> None:
    assert set(re.findall(r"V([\d.]+)", drawn(1.0, 10.0, 100.0, low=0.0).lines[0].spreads)) == {str(BOTTOM)}


@pytest.mark.parametrize(
    ("every", "times"),
    [
        (6 * HOUR, ["28 Mar 12:00", "28 Mar 15:00", "28 Mar 18:00", "28 Mar 21:00", "29 Mar 00:00"]),
        (2 * DAY, ["29 Mar 26", "30 Mar 26", "31 Mar 26", "01 Apr 26"]),
    ],
)
def test_ticks_of_times_are_where_hours_and_days_begin(every: timedelta, times: list[str]) -> None:
    shown = drawn(1.0, 2.0, 3.0, every=every)
    assert [tick.text for tick in shown.across] == times
    steps = {round(two.at - one.at) for one, two in zip(shown.across, shown.across[1:], strict=False)}
    assert max(steps) - min(steps) <= 1, "equal times are equally far apart, whatever clocks do"


def test_a_line_goes_forward_in_time_where_versions_were_measured_in_another_order() -> None:
    path = drawn(1.0, 2.0, 3.0, every=-DAY).lines[0].path
    across = [float(place.partition(",")[0]) for place in path.split()]
    assert across == sorted(across)


def test_of_ten_thousand_points_the_highest_is_kept() -> None:
    shown = drawn(*[1.0] * 5_000, 2.0, *[1.0] * 4_999, by_time=False)
    places = [float(place) for place in re.findall(r",([\d.]+)", shown.lines[0].path)]
    assert len(places) <= 301
    assert min(places) < max(places) - 100
    assert [tick.text for tick in shown.across] == ["2000", "4000", "6000", "8000", "10000"]


def test_an_axis_may_begin_at_zero_however_far_figures_lie_apart() -> None:
    assert [tick.text for tick in drawn(1.0, 5.0, from_zero=True).up] == ["0", "1", "2", "3", "4", "5"]
    assert drawn(-2.0, -1.0, from_zero=True).up[-1].text == "0"


def test_labels_say_what_changed_in_an_environment_and_lie_on_nothing() -> None:
    shown = by_version(
        moved(
            {"cpu_model": "Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz"},
            {"cpu_model": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "driver": "570.172.08"},
        )
    )
    assert [cut.label for cut in shown.cuts] == ["CPU Intel Xeon Platinum 8370C → 8481C"]
    crowded = by_version(moved(*({"driver": f"{number}0.1"} for number in range(12))))
    labels = [cut for cut in crowded.cuts if cut.label]
    assert labels[0].label == "driver 100.1 → 110.1", "the newest first"
    assert len(labels) >= len(crowded.cuts) / 2
    for cut in labels:
        end = cut.begin + 5 * len(cut.label)
        assert 0 <= cut.begin < end <= crowded.width
        others = [other for other in labels if other is not cut]
        assert not any(cut.begin <= other.x <= end for other in others if other.row < cut.row), (
            "no line through it"
        )
        assert not any(cut.begin <= other.begin <= end for other in others if other.row == cut.row)


@pytest.mark.parametrize(
    ("metric", "values", "said"),
    [
        ("latency_p50", [5.0], "one version was measured"),
        ("latency_p50", [5.0, 7.0, 9.0], "no verdict yet over 3 versions: a series is judged from 8 on"),
        ("latency_p50", [5.0] * 8, "no change beyond noise in 8 versions"),
        ("metric", [0.0] * 8, "no change beyond noise in 8 versions"),
        (
            "latency_p50",
            [5.0] * 8 + [9.0],
            "no change was flagged in 9 versions, but version 9 is off their level",
        ),
        ("code_bytes", [5.0, 5.0], "no change that counts in 2 versions"),
    ],
)
def test_a_series_is_called_unchanged_only_where_a_change_would_have_been_found(
    metric: str, values: list[float], said: str
) -> None:
    points = tuple(
        PointView(at + 1, DIGEST, value, value, value, 1, (BEGIN + at * DAY).isoformat())
        for at, value in enumerate(values)
    )
    series = SeriesView(metric, "ms", TARGET, "artifact", DIGEST, {}, points=points)
    view = ChartView(metric, "", "ms", "lower", None, "artifact", (series,))
    whole = ChartsView("team/name", (view,), (metric,), (TARGET,), (), ("artifact",))
    assert [standing.said for standing in chart(view, whole).standings] == [said]


def test_what_production_reports_is_not_where_a_target_is_measured_now() -> None:
    shown = moved({"driver": "1"}, {"driver": "2"}, {"driver": "3"}, reported=1)
    assert [standing.point.number for standing in shown.standings] == [2]
    assert [line.note for line in shown.lines] == ["", "earlier environment", "reported"]
    assert [item.label for item in shown.breaks] == ["driver 1 → 2"]
    (alone,) = moved({"driver": "1"}, reported=1).standings
    assert alone.line.note == "reported"
