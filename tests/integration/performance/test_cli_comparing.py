"""`pt2hub compare` and `pt2hub changes` over a real server: tables for people, one JSON value for programs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.performance.measurements import Measurement
from pt2hub.errors import InvalidInput
from support.figures import Run, latency, measured, ratios, versions
from support.registry import V4

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
FIRST, SECOND = f"{MODEL}@1", f"{MODEL}@2"


@pytest.fixture
def slower(served: Registry) -> Registry:
    """Two versions, the second slower by half, smaller, and measured on a busy machine for the rest."""
    one, other = versions(served, 2)
    measured(served, one, latency(10.0, 10.1, 9.9), Measurement("code_bytes", 2_000_000, "B", "artifact"))
    run = Run(
        [latency(15.0, 15.1, 14.9), latency(3.0, 9.0, metric="first_inference", batch=0)],
        baseline=one,
        beside=[latency(10.0, 10.1, 9.9), latency(3.0, 4.0, metric="first_inference", batch=0)],
        pairs=[
            ratios(1.5, 1.51, 1.49, 1.5, 1.5),
            ratios(0.5, 2.0, 1.0, 3.0, metric="first_inference", batch=0),
        ],
    )
    measured(served, other, Measurement("code_bytes", 1_000_000, "B", "artifact"), run=run)
    served.services.comparisons.examine()
    return served


def test_a_comparison_is_a_table_with_what_to_do_for_a_better_answer(shell: Shell, slower: Registry) -> None:
    assert slower.sql("SELECT 1 FROM performance_events")
    told = shell("compare", FIRST, SECOND)
    assert (told.code, told.err) == (0, "")
    assert f"before  {FIRST} for {V4}" in told.out
    rows = {line.split("  ")[0]: line for line in told.out.splitlines()}
    assert re.search(
        r"10 ms +15 ms +50\.0 % slower \(4\d\.\d to 5\d\.\d %\) +worse +side by side; beyond 5 %, the minimum effect of "
        r"latency_p50, and beyond the noise, \d\.\d %",
        rows["latency_p50 batch 8"],
    )
    assert re.search(r"1.907 MiB +976.6 KiB +50\.0 % smaller +better +exact; beyond 1 %", rows["code_bytes"])
    assert re.search(r"unknown +inconclusive +too noisy: the uncertainty is", rows["first_inference"])
    assert f"For a better comparison: pt2hub measure {SECOND} --target {V4} --baseline {FIRST}\n" in told.out
    assert "The code was recompiled, from the same program" in told.out
    assert "No kernel changed" in told.out
    assert "worse than 1 side by side (50.0 % slower)" in shell("history", MODEL).out
    assert "\x1b" not in told.out
    assert shell("compare", FIRST, SECOND, "--fail-on", "worse").code == 1
    assert shell("compare", SECOND, f"{MODEL}@2", "--fail-on", "worse").code == 1  # an error, not a verdict
    code, document = shell.json("compare", FIRST, SECOND)
    assert (code, document["after"]["number"], document["across"]) == (0, 2, False)
    assert {item["metric"]: item["outcome"] for item in document["metrics"] if item["batch"] != 2} == {
        "latency_p50": "worse",
        "code_bytes": "better",
        "first_inference": "inconclusive",
    }
    slow = next(item for item in document["metrics"] if item["batch"] == 8)
    assert (slow["min_effect"], 0 < slow["noise"] < 0.05) == (0.05, True)
    assert slow["explanation"].startswith("side by side; beyond 5 %, the minimum effect of latency_p50")
    assert document["code"]["same"] is False


def test_a_comparison_that_cannot_be_made_says_what_to_write(shell: Shell, slower: Registry) -> None:
    assert slower.sql("SELECT 1 FROM artifacts")
    told = shell("compare", FIRST, FIRST)
    assert told.code == 1
    assert "Both sides are the same artifact" in told.err
    assert "pt2hub versions" in told.err
    told = shell("compare", FIRST, SECOND, "--target", "torch2.11-cu130-sm90")
    assert told.code == 1
    assert f"It has: {V4}" in told.err
    assert shell.json("compare", FIRST, f"{MODEL}@9")[1]["error"]["code"] == "not_found"


def test_flagged_changes_are_listed_and_filtered(shell: Shell, slower: Registry) -> None:
    assert slower.sql("SELECT 1 FROM artifacts")
    told = shell("changes")
    assert told.lines[0][:4] == ["VERSION", "TARGET", "METRIC", "CHANGE"]
    assert {line[0] for line in told.lines[1:]} == {SECOND}
    code, document = shell.json("changes", MODEL, "--outcome", "worse", "--target", V4)
    assert (code, document["more"]) == (0, False)
    assert [(item["metric"], item["number"], item["before"]) for item in document["events"]] == [
        ("latency_p50", 2, 1)
    ]
    assert shell.json("changes", "--limit", "1")[1]["more"] is True
    assert "No flagged changes" in shell("changes", "--target", "torch2.11-cu130-sm90").out
    assert "Model audio/net not found" in shell("changes", "audio/net").err
    assert shell("changes", "--outcome", "same").code == 2


def test_programs_ask_for_comparisons_and_changes(client: Client, slower: Registry) -> None:
    assert slower.sql("SELECT 1 FROM artifacts")
    found = client.performance.compare(FIRST, SECOND)
    assert repr(found) == f"<Comparison {SECOND} for {V4} against {FIRST} for {V4}>"
    assert "latency_p50 batch 8" in str(found)
    assert "pt2hub measure" in found._repr_html_()
    assert [item.metric for item in client.performance.changes(MODEL, outcome="worse")] == ["latency_p50"]
    assert len(client.performance.changes(limit=1)) == 1
    assert client.performance.changes(limit=1)[0].model == MODEL
    with pytest.raises(InvalidInput, match="Invalid URL parameters"):
        client.performance.changes(outcome="same")
