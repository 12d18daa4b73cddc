"""`pt2hub history`, its API and its CSV, over a real server."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.performance.measurements import Measurement
from pt2hub.domain.performance.metrics import METRICS
from pt2hub.errors import InvalidInput, NotFound, UnknownMetric, UnknownTarget
from pt2hub.rendering.tabular import COLUMNS, history_csv
from pt2hub.wire.performance import HistoryView, SeriesView
from pt2hub.wire.problems import from_dict
from support.figures import Run, latency, measured, versions
from support.registry import ENVIRONMENT, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.client.client import Client
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"


@pytest.fixture
def figures(served: Registry) -> Registry:
    """Three versions, the last one slow, measured at batch 8; the first also on another machine."""
    one, two, three = versions(served, 3)
    for artifact, value in ((one, 10.0), (two, 10.5), (three, 12.6)):
        measured(served, artifact, latency(value * 0.98, value, value * 1.05), run=Run(day=1))
    measured(served, one, latency(0.25), run=Run(environment=replace(ENVIRONMENT, cpu_model="=1+1")))
    served.sql(
        "INSERT INTO performance_events (series_id, model_id, kind, number, before, outcome, ratio, method) "
        "SELECT series_id, model_id, 'comparison', 3, 2, 'worse', 1.2, 'replicates' "
        "FROM series JOIN series_points ON series_id = id WHERE batch = 8 AND number = 3"
    )
    return served


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# -- the command ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("figures")
def test_a_table_shows_values_changes_and_what_was_flagged(shell: Shell) -> None:
    told = shell("history", f"{MODEL}@2", "--batch", "8")
    assert (told.code, told.err) == (0, "")
    title, _, heading, *rest = told.out.splitlines()
    assert title == "latency_p50 of vision/resnet18: median time of a call"
    assert heading.startswith(f"{V4}  batch 8  ")
    assert rest[0].split(maxsplit=1) == [
        "where",
        "EPYC, 2 cores, cpu level x86_64_v4, torch 2.13.0+cpu",
    ]
    table = [line.split("  ") for line in rest if line[:2] in {"3 ", "2 ", "1 "}]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in table]
    assert [[*row[:5], row[-1]] for row in rows] == [
        ["3", "12.60 ms", "7.0 %", "+20.0 %", "1", "worse than 2 (20.0 % slower)"],
        ["2", "10.50 ms", "7.0 %", "+5.0 %", "1", f"<- {MODEL}@2"],
        ["1", "10.00 ms", "7.0 %", "-", "1", "-"],
        ["1", "250 µs", "-", "-", "1", "-"],  # of the other machine
    ]


@pytest.mark.usefixtures("figures")
def test_a_version_outside_of_the_tables_is_named_and_older_ones_are_reached(shell: Shell) -> None:
    told = shell("history", f"{MODEL}@1", "--batch", "2", "--limit", "1")
    assert "To see older versions: --before 3" in told.out
    assert "Version 1 is not in these" in told.out
    assert "<- vision/resnet18@1" in shell("history", f"{MODEL}@1", "--batch", "2", "--before", "2").out


@pytest.mark.usefixtures("figures")
def test_the_list_says_what_was_measured(shell: Shell) -> None:
    told = shell("history", MODEL, "--list")
    rows = [line[:4] + line[5:8] for line in told.lines if line[0] == "latency_p50"]
    assert rows[0] == ["latency_p50", V4, "2", "artifact", "3", "10.5", "ms"]
    assert shell.json("history", MODEL, "--list")[1]["series"][0]["values"] == [10.5, 10.5, 10.5]


@pytest.mark.usefixtures("figures")
def test_csv_and_json_hold_every_digit(shell: Shell) -> None:
    told = shell("history", MODEL, "--batch", "8", "--csv")
    found = [(row["number"], float(row["value"]), row["change"]) for row in rows_of(told.out)]
    assert sorted(found) == [("1", 0.25, ""), ("1", 10.0, ""), ("2", 10.5, ""), ("3", 12.6, "worse")]
    code, document = shell.json("history", MODEL, "--batch", "8")
    assert (code, document["model"], len(document["series"])) == (0, MODEL, 2)
    told = shell("history", MODEL, "--csv", "--json")
    assert told.code == 2
    assert "--csv cannot be combined with --json or --list." in told.out


def test_a_model_without_figures_says_what_to_do(shell: Shell, served: Registry) -> None:
    served.submit()
    for args in (("history", MODEL), ("history", MODEL, "--list")):
        assert f"pt2hub measure {MODEL}" in shell(*args).out


@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((MODEL, "--metric", "latency"), "Did you mean latency_p"),
        (("vision/resnet", "--list"), "Model vision/resnet not found"),
        ((MODEL, "--batch", "3"), "There are measurements for: 2, 8"),
        ((f"{MODEL}@9",), "Its versions are 1 to 3"),
    ],
)
def test_what_there_is_none_of_is_explained(shell: Shell, args: tuple[str, ...], words: str) -> None:
    told = shell("history", *args)
    assert (told.code, told.out) == (1, "")
    assert words in told.err


# -- the client and the API ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("figures")
def test_the_client_reads_histories_of_models_and_references(client: Client) -> None:
    view = client.performance.history(f"{MODEL}@3", target=V4, batch=8, limit=2)
    new, _ = view.series
    assert [point.number for point in new.points] == [2, 3]
    assert (new.more, new.changes[0].outcome) == (True, "worse")
    assert "worse since 3 (20.0 % slower)" in str(view)
    assert client.performance.metrics(MODEL).series[0].metric == "latency_p50"
    with pytest.raises(UnknownMetric) as caught:
        client.performance.history(MODEL, "latncy_p50")
    assert caught.value.context["suggestions"][0] == "latency_p50"
    with pytest.raises(NotFound, match="Model vision/none not found"):
        client.performance.metrics("vision/none")


@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize(
    ("query", "accept", "expected"),
    [
        ("&format=csv", "*/*", "text/csv"),
        ("", "text/csv", "text/csv"),
        ("", "text/html, text/csv;q=0.9, */*;q=0.1", "text/csv"),
        ("&format=json", "text/csv", "application/json"),
        ("", "*/*", "application/json"),
        ("", "", "application/json"),
    ],
)
def test_the_api_answers_csv_where_it_is_asked_for(
    api: FlaskClient, query: str, accept: str, expected: str
) -> None:
    path = f"/api/v1/models/{MODEL}/history?metric=latency_p50{query}"
    response = api.get(path, headers={"Accept": accept})
    assert (response.status_code, response.mimetype) == (200, expected)
    assert "Accept" in response.headers["Vary"]
    if expected == "text/csv":
        assert tuple(response.get_data(as_text=True).splitlines()[0].split(",")) == COLUMNS
        assert "vision-resnet18-latency_p50.csv" in response.headers["Content-Disposition"]


@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize(
    ("path", "error"),
    [
        (f"models/{MODEL}/history", InvalidInput),  # no metric
        (f"models/{MODEL}/history?metric=latency_p50&limit=1001", InvalidInput),
        (f"models/{MODEL}/history?metric=latency_p50&limit=0", InvalidInput),
        (f"models/{MODEL}/history?metric=latency_p50&batch=two", InvalidInput),
        (f"models/{MODEL}/history?metric=latency_p50&format=xml", InvalidInput),
        (f"models/{MODEL}/history?metric=%00", UnknownMetric),
        (f"models/{MODEL}/history?metric=latency_p50&target=%00", UnknownTarget),
        (f"models/{MODEL}/history?metric=latency_p50&environment=%00", InvalidInput),
        (f"models/{MODEL}/history?metric=latency_p50&implementation=%00", InvalidInput),
        ("models/vision/none/history?metric=latency_p50", NotFound),
    ],
)
def test_the_api_refuses_what_is_wrong(api: FlaskClient, path: str, error: type[Exception]) -> None:
    response = api.get(f"/api/v1/{path}")
    assert response.status_code in {404, 422}
    assert type(from_dict(response.get_json(force=True))) is error


@pytest.mark.usefixtures("figures")
def test_the_metrics_are_answered(api: FlaskClient) -> None:
    found = api.get(f"/api/v1/models/{MODEL}/metrics").get_json()["series"]
    assert {item["metric"] for item in found} <= set(METRICS)


def test_texts_that_a_spreadsheet_would_run_are_only_texts() -> None:
    view: Any = HistoryView("a/b", "tokens", (_series("=cmd|' /C calc'!A0", -1.5),))
    (row,) = rows_of(history_csv(view))
    assert (row["unit"], row["value"], row["implementation"]) == ("'=cmd|' /C calc'!A0", "-1.5", "'@x")


def _series(unit: str, value: float) -> SeriesView:
    from pt2hub.domain.digests import digest_bytes
    from pt2hub.wire.performance import PointView

    digest = digest_bytes(b"")
    point = PointView(1, digest, value, value, value, 1, "2026-01-01T00:00:00Z")
    return SeriesView("tokens", unit, V4, "@x", digest, {}, points=(point,))


def test_free_metrics_are_shown_with_their_units(shell: Shell, served: Registry) -> None:
    (one,) = versions(served, 1)
    measured(served, one, Measurement("tokens", 12345.6, "1/s", "artifact"))
    out = shell("history", MODEL, "--metric", "tokens").out
    assert "12,346 1/s" in out
    assert re.search(r"better +unknown; set it in the model's policy \(pt2hub policy\)", out)
