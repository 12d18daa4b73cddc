"""Pages of figures and comparisons, as browsers without scripts see them, over a real PostgreSQL."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pt2hub.domain.performance.measurements import Measurement
from support.figures import Run, latency, measured, ratios, versions
from support.pages import Page
from support.registry import ENVIRONMENT, GPU, V3, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry

MODEL = "vision/resnet18"
PAGE = f"/models/{MODEL}/performance"
FASTER = replace(ENVIRONMENT, cpu_model="Xeon")
NASTY = "<b>EPYC</b>\"'"


def read(web: FlaskClient, path: str, status: int = 200) -> tuple[Page, str]:
    response = web.get(path)
    html = response.get_data(as_text=True)
    assert response.status_code == status, html[:2000]
    return Page(html), html


def long_history(registry: Registry, count: int, *, worse_from: int = 10**9, batch: int = 8) -> None:
    """A series as long as of so many versions, whose artifacts nobody looks at."""
    (one,) = versions(registry, 1)
    measured(registry, one, latency(10, batch=batch))
    registry.sql(
        "INSERT INTO series_points SELECT id, number, %s, (10 + number %% 2 * 0.1) * CASE WHEN number >= %s THEN 1.3 ELSE 1 END,"
        " 9.5, 13.5, 3, now() - (%s - number) * interval '1 hour' FROM series, generate_series(2, %s::int) AS number "
        "WHERE batch = %s AND metric = 'latency_p50' AND implementation = 'artifact'",
        one,
        worse_from,
        count,
        count,
        batch,
    )
    if worse_from <= count:
        registry.sql(
            "INSERT INTO performance_events (series_id, model_id, kind, number, before, outcome, ratio, method) "
            "SELECT id, model_id, 'change_point', %s, %s, 'worse', 1.3, 'series' FROM series WHERE batch = %s",
            worse_from,
            worse_from - 1,
            batch,
        )


def columns(html: str) -> list[dict[str, Any]]:
    """What the charts of a page are drawn from."""
    return [
        json.loads(text)
        for text in re.findall(
            r'data-chart [^>]*><script type="application/json">(.*?)</script>', html, re.DOTALL
        )
    ]


# -- performance -------------------------------------------------------------------------------------------


def test_a_page_says_how_fast_where_since_when_and_what_is_noise(
    web: FlaskClient, registry: Registry
) -> None:
    long_history(registry, 40, worse_from=30)
    page, html = read(web, f"{PAGE}?metric=latency_p50&batch=8")
    assert "13 ms version 40" in page.text
    assert "worse 30.0 % slower since version 30" in page.text
    assert (
        "The median latency at batch 8 is 30.0 % slower on CPU v4 · torch 2.13 since version 30." in page.text
    )
    assert "usual noise" in page.text
    assert f"/compare?before=vision/resnet18@29&after=vision/resnet18@30&target={V4}" in page.links
    assert "median time of a call · lower is better" in page.text
    (chart,) = columns(html)
    (mark,), (line,) = chart["marks"], chart["lines"]
    assert (mark["number"], mark["outcome"], mark["up"]) == (30, "worse", True)
    assert line["noise"]
    assert len(line["levels"]) == 2, "a level before the change, and one after it"


def test_two_versions_are_too_few_for_a_verdict_over_the_series_wherever_it_is_told(
    web: FlaskClient, registry: Registry
) -> None:
    one, two = versions(registry, 2)
    for artifact, value in ((one, 5), (two, 9)):
        measured(registry, artifact, latency(value, batch=2), run=Run(day=1))
    page, _ = read(web, f"{PAGE}?metric=latency_p50&batch=2")
    assert "2 versions, too few for a trend: it takes 8" in page.text
    for address in ("/", f"/models/{MODEL}"):
        shown, _ = read(web, address)
        assert ("inconclusive" in shown.text, "steady" in shown.text) == (True, False)


def test_other_machines_begin_a_line_and_are_drawn_as_a_break(web: FlaskClient, registry: Registry) -> None:
    one, two, three = versions(registry, 3)
    for artifact in (one, two):
        measured(registry, artifact, latency(5))
    measured(registry, three, latency(9), run=Run(environment=FASTER, day=1))
    page, html = read(web, f"{PAGE}?metric=latency_p50&batch=8")
    assert "from version 3 on" in page.text
    assert "cpu model EPYC → Xeon" in page.text
    assert "worse" not in page.text
    (chart,) = columns(html)
    assert [(cut["line"], cut["x"]) for cut in chart["breaks"]] == [(0, 2.5)]
    assert [(line["machine"], line["numbers"], line["age"]) for line in chart["lines"]] == [
        ("Xeon, 2 cores", [3], 0),
        ("EPYC, 2 cores", [1, 2], 1),
    ]


def test_two_figures_for_one_change_are_explained_where_they_stand(
    web: FlaskClient, registry: Registry
) -> None:
    one, two = versions(registry, 2)
    measured(registry, one, latency(10))
    beside = Run(baseline=one, beside=[latency(10, 10, 10)], pairs=[ratios(1.2, 1.21, 1.2, 1.19, 1.2)], day=1)
    measured(registry, two, latency(11, 11, 11, 11, 11), run=beside)
    registry.services.comparisons.examine()
    page, _ = read(web, f"{PAGE}?metric=latency_p50&batch=8")
    assert "20.0 % slower since version 2" in page.text
    assert "both timed side by side in one run; by the points on the chart: 10.0 % slower" in page.text
    listed, _ = read(web, "/changes")
    assert "side by side; points 10.0 % slower" in listed.text
    assert "side by side compares times of one run" in listed.text


def test_without_a_batch_charts_are_at_that_of_the_example_inputs(
    web: FlaskClient, registry: Registry
) -> None:
    (one,) = versions(registry, 1)
    measured(registry, one, latency(5, batch=1), latency(7, batch=2), latency(50, batch=16))
    page, html = read(web, PAGE)
    (chart,) = columns(html)
    assert chart["lines"][0]["values"] == [7.0]
    assert "latency_p50 batch 2" in page.text
    assert "latency_p50 batch 16" in read(web, f"{PAGE}?batch=16")[0].text


def test_versions_may_be_cut_off_on_both_sides_and_pages_go_back(
    web: FlaskClient, registry: Registry
) -> None:
    long_history(registry, 500)
    (chart,) = columns(read(web, f"{PAGE}?metric=latency_p50&batch=8&from=100&to=120")[1])
    assert chart["lines"][0]["numbers"] == list(range(100, 121))
    seen: list[int] = []
    address = f"{PAGE}?metric=latency_p50&batch=8&limit=1000"
    for _ in range(10):
        page, _ = read(web, address)
        seen += [int(value.partition("~")[0]) for name, value in page.fields if name == "point"]
        older = [
            link
            for link in page.links
            if (to := re.search(r"metric=latency_p50&batch=8&to=(\d+)", link)) and "target=" not in link
            if int(to[1]) <= min(seen)
        ]
        if not older:
            break
        (address,) = set(older)
    assert sorted(set(seen)) == list(range(1, 501))


def test_ten_thousand_points_come_as_columns(web: FlaskClient, registry: Registry) -> None:
    long_history(registry, 10_000)
    _, html = read(web, f"{PAGE}?metric=latency_p50&batch=8&limit=10000")
    (chart,) = columns(html)
    assert len(chart["lines"][0]["numbers"]) == 10_000
    assert len(html) < 1_000_000


def test_a_model_without_figures_says_how_to_get_some(web: FlaskClient, registry: Registry) -> None:
    registry.worker("w1")
    view = registry.submit()
    page, _ = read(web, PAGE)
    assert "No version is ready yet" in page.text
    assert "pt2hub measure" not in page.text  # it would answer not_ready
    registry.published(view)
    registry.sql("TRUNCATE series CASCADE")
    page, _ = read(web, PAGE)
    assert "pt2hub measure vision/resnet18" in page.text


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("metric=latency_p5", 422, "Did you mean latency_p50"),
        ("metric=latency_p50&batch=3", 404, "There are measurements for: 2"),
        (f"target={GPU}", 404, f"There are measurements for: {V4}"),
        ("target=%3Cscript%3E", 422, "<script>"),
        ("from=x", 422, "Invalid version number"),
        ("from=9&to=3", 422, "Swap them"),
        ("limit=99999999999999999999", 422, "Invalid number of versions"),
        ("x=%3Cb%3E", 422, "Must be version or time"),
        ("batch=%D9%A3", 422, "Invalid batch size"),
    ],
)
def test_wrong_addresses_say_what_is_right(
    web: FlaskClient, registry: Registry, query: str, status: int, said: str
) -> None:
    versions(registry, 1)
    page, html = read(web, f"{PAGE}?{query}", status)
    assert said in page.text
    assert "<script>" not in html.replace("<script type", "")


def test_many_metrics_are_shown_where_one_of_them_is_of_what_ran_beside_only(
    web: FlaskClient, registry: Registry
) -> None:
    """A form that shows every metric has all of its boxes checked, whatever was measured of the artifact itself."""
    (one,) = versions(registry, 1)
    ratio = Measurement("speedup", 2.0, "x", "eager", 8, None, None)
    own = [latency(5, metric=f"own_{number}") for number in range(20)]
    measured(registry, one, latency(5), *own, ratio)
    boxes = "&".join(f"metric={name}" for name in ("speedup", "latency_p50", *(item.metric for item in own)))
    assert boxes.count("metric=") > 20
    _, html = read(web, f"{PAGE}?{boxes}")
    _, every = read(web, f"{PAGE}?metric=*")
    assert len(columns(html)) == len(columns(every)) == 21
    read(web, f"{PAGE}?metric=speedup", 404)


def test_names_of_machines_are_written_as_text(web: FlaskClient, registry: Registry) -> None:
    (one,) = versions(registry, 1)
    measured(registry, one, latency(5), run=Run(environment=replace(ENVIRONMENT, cpu_model=NASTY)))
    page, html = read(web, f"{PAGE}?metric=latency_p50&batch=8")
    assert NASTY in page.text
    assert "<b>" not in html
    assert columns(html)[0]["lines"][0]["machine"].startswith(NASTY)


def test_charts_are_over_time_and_of_changes_where_that_is_asked_for(
    web: FlaskClient, registry: Registry
) -> None:
    long_history(registry, 20)
    (chart,) = columns(read(web, f"{PAGE}?metric=latency_p50&batch=8&x=time&y=change")[1])
    assert (chart["kind"], chart["byTime"]) == ("change", True)
    (line,) = chart["lines"]
    assert line["xs"] == sorted(line["xs"])


# -- comparing ---------------------------------------------------------------------------------------------


def test_a_comparison_shows_what_the_command_prints(web: FlaskClient, registry: Registry) -> None:
    one, two = versions(registry, 2)
    beside = Run(baseline=one, beside=[latency(10, 10, 10)], pairs=[ratios(1.2, 1.21, 1.2, 1.19, 1.2)])
    measured(registry, two, latency(12, 12, 12, 12, 12), run=beside)
    page, html = read(web, f"/compare?before={MODEL}@1&after={MODEL}@2")
    said = page.text.replace("\u00a0", " ")
    assert "Version 2 is 20.0 % slower at batch 8 than version 1 on CPU v4 · torch 2.13" in said
    assert "latency_p50 batch 8 worse 20.0 % slower 1" in said
    assert "limit 5 %" in said
    assert "Compared side by side, unless a row says otherwise." in said
    assert "The code was recompiled, from the same program" in page.text
    assert 'class="interval"' in html
    assert f"pt2hub compare {MODEL}@1 {MODEL}@2 --target {V4}" in page.text
    assert any(link.startswith("/artifacts/sha256:") for link in page.links)


def test_two_versions_are_compared_on_every_target_that_both_have(
    web: FlaskClient, registry: Registry
) -> None:
    for tolerance in (0.1, 0.2):
        version = registry.submit(targets=[V3, V4], checks={"tolerance": tolerance})
        for build in version.builds:
            registry.worker(build.target, build.target)
            claim = registry.services.builds.claim(build.id, build.target)
            assert claim is not None
            registry.services.builds.publish(claim, registry.publication(claim))
    page, _ = read(web, f"/compare?before={MODEL}@1&after={MODEL}@2")
    assert "It is inconclusive on both targets whether version 2 is as fast as version 1." in page.text
    assert "All differences on CPU v3 · torch 2.13" in page.text
    for target in (V3, V4):
        assert f"/compare?before={MODEL}@1&after={MODEL}@2&target={target}" in page.links
    choice, html = read(web, f"/diff?before={MODEL}@1&after={MODEL}@2")
    assert "CPU v4 · torch 2.13" in choice.text
    assert f'title="{V4}"' in html
    one, _ = read(web, f"/compare?before={MODEL}@1&after={MODEL}@2&target={V4}")
    assert f"/compare?before={MODEL}@1&after={MODEL}@2" in one.links


def test_a_range_of_versions_is_chosen_over_all_of_them(web: FlaskClient, registry: Registry) -> None:
    long_history(registry, 50)
    _, html = read(web, f"{PAGE}?metric=latency_p50&batch=8&from=20&to=30")
    (text,) = re.findall(r'data-strip [^>]*><script type="application/json">(.*?)</script>', html, re.DOTALL)
    strip = json.loads(text)
    assert strip["xs"] == list(range(1, 51))
    assert strip["chosen"] == [20, 30]


def test_two_rows_of_a_table_lead_to_their_comparison(web: FlaskClient, registry: Registry) -> None:
    versions(registry, 2)
    response = web.get(f"/compare?model={MODEL}&point=2~{V4}&point=1~{V4}")
    assert response.status_code == 302
    assert parse_qs(urlsplit(response.location).query) == {
        "before": [f"{MODEL}@1"],
        "after": [f"{MODEL}@2"],
        "target": [V4],
    }
    one, _ = read(web, f"/compare?model={MODEL}&point=2~{V4}", 422)
    assert "select exactly two rows" in one.text
    read(web, f"/compare?model={MODEL}&point=2~{V4}&point=x", 422)


def test_a_comparison_that_cannot_be_made_keeps_what_was_typed(web: FlaskClient, registry: Registry) -> None:
    registry.worker("w1", V4)
    registry.worker("w2", GPU)
    page, _ = read(web, "/compare")
    assert ("before", "") in page.fields
    wrong, html = read(web, "/compare?before=vision/none@1&after=%22%3E%3Cscript%3E", 404)
    assert "<script>alert" not in html
    assert ("after", '"><script>') in wrong.fields
    missing, _ = read(web, f"/compare?before={MODEL}@1", 422)
    assert "After is required" in missing.text
