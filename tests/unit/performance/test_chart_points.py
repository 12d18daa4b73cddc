"""What charts are made of: their points for the script, kinds of axes, labels, and what they say in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask

from pt2hub.domain.digests import Digest
from pt2hub.server.pages.performance.charts import Chart, chart, split
from pt2hub.server.pages.performance.points import document, find_span
from pt2hub.server.pages.performance.trend_answers import answer_trends
from pt2hub.server.views.charts import ChartsView, ChartView
from pt2hub.wire.performance import ChangeView, PointView, SeriesView

TARGET, GPU = "torch2.13-cpu-x86_64_v4", "torch2.13-cu130-sm90"
app = Flask(__name__)
app.add_url_rule("/compare", "pages.compare", lambda: "")
DIGEST = Digest("sha256:" + "0" * 64)
BEGIN = datetime(2026, 3, 28, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def drawn(
    *values: float, every: timedelta = HOUR, shown_as: str = "value", by_time: bool = False
) -> dict[str, Any]:
    """A chart of versions with these figures, measured one after the other, as JSON."""
    points = tuple(
        PointView(at + 1, DIGEST, value, value, value, 1, (BEGIN + at * every).isoformat())
        for at, value in enumerate(values)
    )
    series = SeriesView("metric", "ms", TARGET, "artifact", DIGEST, {}, noise=0.05, points=points)
    view = ChartView("metric", "", "ms", "lower", None, "artifact", (series,))
    whole = ChartsView("team/name", (view,), ("metric",), (TARGET,), (), ("artifact",))
    return document(chart(view, whole, shown_as), by_time=by_time)


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


@pytest.mark.parametrize(
    ("values", "shown_as", "kind"),
    [
        ([5.0, 6.0], "value", "value"),
        ([1.0, 5.0], "value", "value"),
        ([1.0, 5.0], "shared", "log"),
        ([0.0, 5.0], "shared", "value"),
        ([1.0, 5.0], "zero", "zero"),
        ([1.0, 5.0], "change", "change"),
        ([-10.0, -9.5], "change", "value"),
    ],
)
def test_an_axis_is_of_a_kind_that_its_values_allow(values: list[float], shown_as: str, kind: str) -> None:
    assert drawn(*values, shown_as=shown_as)["kind"] == kind


def test_values_are_in_the_unit_of_the_chart_and_within_what_can_be_drawn() -> None:
    small = drawn(1e-6, 2e-6)
    assert (small["unit"], small["lines"][0]["values"]) == ("ns", [1.0, 2.0])
    huge = drawn(-1e308, 1e308)
    assert max(map(abs, huge["lines"][0]["values"])) <= 1e300


def test_a_line_goes_forward_in_time_where_versions_were_measured_in_another_order() -> None:
    (line,) = drawn(1.0, 2.0, 3.0, every=-DAY, by_time=True)["lines"]
    assert line["xs"] == sorted(line["xs"])
    assert (line["numbers"], line["values"]) == ([3, 2, 1], [3.0, 2.0, 1.0])
    (line,) = drawn(1.0, 2.0, 3.0, every=timedelta(0), by_time=True)["lines"]
    assert len(set(line["xs"])) == 3, "points of one time lie beside each other"
    assert line["levels"] == [[line["xs"][0], line["xs"][-1], 2.0]]


def test_labels_say_what_changed_in_an_environment() -> None:
    shown = document(
        moved(
            {"cpu_model": "Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz"},
            {"cpu_model": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "driver": "570.172.08"},
        ),
        by_time=False,
    )
    (cut,) = shown["breaks"]
    assert (cut["x"], cut["label"]) == (1.5, "CPU Intel Xeon Platinum 8370C → 8481C")


def test_every_second_environment_of_a_target_is_shaded() -> None:
    machines = [{"cpu_model": f"EPYC {number}"} for number in range(4)]
    assert document(moved(*machines), by_time=False)["bands"] == [[1.5, 2.5], [3.5, None]]
    assert document(moved(*machines[:3]), by_time=False)["bands"] == [[1.5, 2.5]]
    assert document(moved(machines[0]), by_time=False)["bands"] == []


def test_changes_are_relative_to_the_chosen_version_where_a_line_has_it() -> None:
    view, whole = targets({TARGET: [5.0, 6.0, 7.0]})
    for base, value in ((2, 6.0), (9, 6.0), (None, 6.0), (1, 5.0)):
        (line,) = document(chart(view, whole, "change", base), by_time=False)["lines"]
        assert line["base"] == value


def test_each_target_has_a_chart_with_its_own_axis_over_the_same_versions() -> None:
    view, whole = targets({TARGET: [50.0, 51.0], GPU: [1.0] * 20})
    charts = split(view, whole, "value")
    assert {target: item.kind for target, item in charts.items()} == {TARGET: "value", GPU: "value"}
    assert find_span(charts.values(), by_time=False) == (1, 20)
    assert chart(view, whole, "shared").kind == "log"


def test_the_page_says_in_one_sentence_what_changed_since_when_and_where() -> None:
    view, whole = targets({TARGET: [5.0] * 9, GPU: [1.0] * 9})
    assert (
        answer_trends(chart(view, whole)).text
        == "The median latency has no flagged change on any of two targets."
    )
    view, whole = targets({TARGET: [5.0] * 9, GPU: [1.0] * 9}, worse={GPU: 8})
    with app.test_request_context():
        found = answer_trends(chart(view, whole))
    assert (found.tone, found.text) == (
        "bad",
        "The median latency is 11.0 % slower on H100 · torch 2.13 since version 8; no flagged change on 1 of 2 targets.",
    )


def targets(
    values: dict[str, list[float]], worse: dict[str, int] | None = None
) -> tuple[ChartView, ChartsView]:
    """A metric on several targets; on some of them it is worse since a version."""
    series = tuple(
        SeriesView(
            "latency_p50",
            "ms",
            target,
            "artifact",
            DIGEST,
            {},
            points=tuple(
                PointView(at + 1, DIGEST, value, value, value, 1, (BEGIN + at * DAY).isoformat())
                for at, value in enumerate(given)
            ),
            changes=tuple(
                ChangeView(number, number - 1, "worse", 1.11)
                for name, number in (worse or {}).items()
                if name == target
            ),
        )
        for target, given in sorted(values.items())
    )
    view = ChartView("latency_p50", "", "ms", "lower", None, "artifact", series)
    return view, ChartsView("team/name", (view,), ("latency_p50",), tuple(sorted(values)), (), ("artifact",))


@pytest.mark.parametrize(
    ("metric", "values", "said"),
    [
        ("latency_p50", [5.0], "one version measured"),
        ("latency_p50", [5.0, 7.0, 9.0], "3 versions, too few for a trend: it takes 8"),
        ("latency_p50", [5.0] * 8, "no change beyond noise in 8 versions"),
        ("metric", [0.0] * 8, "no change beyond noise in 8 versions"),
        (
            "latency_p50",
            [5.0] * 8 + [9.0],
            "no flagged change in 9 versions, but version 9 deviates from their level",
        ),
        ("code_bytes", [5.0, 5.0], "no significant change in 2 versions"),
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
    assert [trend.summary for trend in chart(view, whole).trends] == [said]


def test_what_production_reports_is_not_where_a_target_is_measured_now() -> None:
    shown = moved({"driver": "1"}, {"driver": "2"}, {"driver": "3"}, reported=1)
    assert [trend.point.number for trend in shown.trends] == [2]
    assert [line.note for line in shown.lines] == ["", "earlier environment", "reported"]
    assert [item.label for item in shown.breaks] == ["driver 1 → 2"]
    (alone,) = moved({"driver": "1"}, reported=1).trends
    assert alone.line.note == "reported"
