"""The front page, flagged changes, targets and workers, as a browser without scripts gets them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.tokens import Actor
from pt2hub.errors import CompileFailed
from support.pages import Page
from support.registry import GPU, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry

MODEL = "vision/resnet18"


def read(web: FlaskClient, address: str, status: int = 200) -> Page:
    response = web.get(address)
    assert response.status_code == status, response.get_data(as_text=True)
    return Page(response.get_data(as_text=True))


def flag(registry: Registry, number: int, outcome: str = "worse", ratio: float = 1.15) -> None:
    registry.sql(
        "INSERT INTO performance_events (series_id, model_id, kind, number, before, outcome, ratio, method) "
        "SELECT id, model_id, 'comparison', %s::int, %s::int - 1, %s, %s, 'replicates' FROM series "
        "WHERE metric = 'latency_p50' AND implementation = 'artifact'",
        number,
        number,
        outcome,
        ratio,
    )


# -- front -------------------------------------------------------------------------------------------------


def test_an_empty_server_says_how_to_publish_and_that_nobody_works(web: FlaskClient) -> None:
    page = read(web, "/")
    assert "No models yet." in page.text
    assert "pt2hub publish SPEC.yaml --wait" in page.text
    assert "0 workers for 0 targets" in page.text


def test_the_front_page_says_what_there_is_what_is_in_production_how_it_moved_and_what_failed(
    web: FlaskClient, served: Registry
) -> None:
    for tolerance, said in ((0.1, "one version measured"), (0.2, "inconclusive")):
        served.published(served.submit(checks={"tolerance": tolerance}))
        assert said in read(web, "/").text
    failing = served.submit(checks={"tolerance": 0.3}).builds[0].id
    served.services.builds.fail(served.claim(failing), CompileFailed("no <b>such</b> thing"))
    for alias, number in (("candidate", 2), ("prod", 1)):
        served.services.aliases.move(MODEL, alias, number, expected=None, reason="first", by=Actor("t"))
    flag(served, 2)
    served.sql("UPDATE models SET description = '<script>alert(1)</script> sorts pictures'")
    page = read(web, "/")
    assert "vision/resnet18 <script>alert(1)</script> sorts pictures" in page.text
    assert "ready 2" in page.text
    assert "failed 3" in page.text
    assert "prod 1 candidate 2" in page.text  # what is in production comes first
    assert f"15.0 % slower since 2 {V4}" in page.text
    assert "1 version regressed 0 improved, last 30 days 1 build failed last 7 days" in page.text
    assert "compile_failed" in page.text
    known = {
        f"/models/{MODEL}",
        f"/models/{MODEL}/versions/2",
        f"/models/{MODEL}/aliases/prod",
        f"/models/{MODEL}/performance?metric=latency_p50&target={V4}&batch=2",
        f"/compare?before=vision/resnet18@1&after=vision/resnet18@2&target={V4}",
        f"/builds/{failing}",
        "/builds?state=failed",
        "/builds?state=failed&days=7",
        "/changes?outcome=worse",
    }
    assert known <= set(page.links)


def test_models_come_in_pages_by_name_and_only_the_first_says_what_goes_on(
    web: FlaskClient, served: Registry
) -> None:
    served.sql(
        "INSERT INTO models (name) SELECT 'team/m' || lpad(n::text, 2, '0') FROM generate_series(1, 45) AS n"
    )
    address, seen = "/", []
    while address:
        page = read(web, address)
        assert ("Latest builds" in page.text) == (address == "/")
        seen += [link for link in page.links if link.startswith("/models/") and link.count("/") == 3]
        address = next((link for link in page.links if link.startswith("/?after=")), "")
    assert seen == [f"/models/team/m{number:02}" for number in range(1, 46)]


def test_search_finds_parts_of_names_keeps_what_was_typed_and_pages(
    web: FlaskClient, served: Registry
) -> None:
    served.sql("INSERT INTO models (name) SELECT 'nlp/bert' || n FROM generate_series(1, 21) AS n")
    served.sql("INSERT INTO models (name) VALUES ('vision/vit')")
    page = read(web, "/?q=BERT")
    assert ("q", "BERT") in page.fields
    assert "vision/vit" not in page.text
    following = next(link for link in page.links if link.startswith("/?q=BERT&after="))
    assert "nlp/bert9" in read(web, following).text
    assert "No models match “%_<b>”." in read(web, "/?q=%25_<b>").text
    assert "No models match" in read(web, f"/?q={'x' * 3000}").text
    assert "Models matching" not in read(web, "/?q=%00%20").text
    assert "invalid model name" in read(web, "/?after=%00", 422).text


def test_a_teams_models_have_an_address_and_so_has_the_list(web: FlaskClient, served: Registry) -> None:
    for name in ("vision/resnet18", "vision/vit", "demo-vision/resnet18"):
        served.submit(model=name)
    assert web.get("/models?q=vit").headers["Location"] == "/?q=vit"
    page = read(web, "/models/vision")
    assert [link for link in page.links if link.startswith("/models/") and "/versions/" not in link] == [
        "/models/vision/resnet18",
        "/models/vision/vit",
    ]
    rest = read(web, "/models/vision?after=vision/resnet18")
    assert ("/models/vision" in rest.links, "/models/vision/resnet18" in rest.links) == (True, False)
    assert "/models/vision" in read(web, "/models/vision/vit").links
    for address in ("/models/ision", "/models/Vision", "/models/%00", "/models/vision%25"):
        assert "Team " in read(web, address, 404).text


# -- changes -----------------------------------------------------------------------------------------------


def test_changes_are_chosen_and_a_wrong_filter_comes_back_as_it_was_typed(
    web: FlaskClient, served: Registry
) -> None:
    assert "No flagged changes yet." in read(web, "/changes").text
    for tolerance in (0.1, 0.2, 0.3):
        served.published(served.submit(checks={"tolerance": tolerance}))
    flag(served, 2)
    flag(served, 3, "better", 0.8)
    page = read(web, "/changes")
    assert "2 regressions in the last 7 days" not in page.text
    assert "1 regression in the last 7 days, not in production." in page.text
    assert "worse 15.0 % slower on CPU v4 · torch 2.13 Compare with version 1" in page.text
    assert "latency_p50 batch 2 15.0 % slower CPU v4 · torch 2.13 @1 separate runs" in page.text
    assert "better 20.0 % faster on CPU v4 · torch 2.13" in page.text
    chosen = read(web, f"/changes?outcome=better&model={MODEL}&target={V4}")
    assert ("model", MODEL) in chosen.fields
    assert "resnet18@2" not in chosen.text
    assert "resnet18@3" in chosen.text
    assert read(web, "/changes?model=vision&since=7").text.count("resnet18@") >= 2
    assert "No changes match." in read(web, "/changes?model=audio").text
    worst = read(web, "/changes?sort=worst").text
    assert worst.index("15.0 % slower") < worst.index("20.0 % faster")
    assert "No changes match." in read(web, f"/changes?target={GPU}").text
    for query, status, said in (
        ("model=vision/resnet81", 404, "Did you mean vision/resnet18?"),
        ("model=%3Cb%3E%00", 422, "invalid model name"),
        ("target=nowhere", 422, "unknown target"),
        ("outcome=bad", 422, "outcome"),
        ("after=yesterday", 422, "Invalid cursor"),
        ("sort=worst&after=yesterday", 422, "Invalid cursor"),
        ("sort=best", 422, "Unknown order"),
        ("since=8", 422, "Invalid number of days"),
    ):
        assert said in read(web, f"/changes?{query}", status).text
    assert ("model", "vision/resnet81") in read(web, "/changes?model=vision/resnet81", 404).fields


def test_changes_come_in_pages_that_keep_their_filters(web: FlaskClient, served: Registry) -> None:
    served.published()
    for number in range(2, 62):
        flag(served, number)
    for order in ("", "&sort=worst"):
        address, seen = f"/changes?outcome=worse{order}", []
        while address:
            page = read(web, address)
            seen += re.findall(r"resnet18@(\d+) ", page.text)
            following = [link for link in page.links if link.startswith("/changes?") and "after=" in link]
            assert all("outcome=worse" in link for link in following)
            address = following[0] if following else ""
        assert sorted(map(int, seen)) == list(range(2, 62)), "each version once"
        assert f"/changes?outcome=worse{order}" in page.links  # back to the first page


# -- targets and workers -----------------------------------------------------------------------------------


def test_workers_say_what_they_do_and_a_target_that_nobody_builds_for_stands_out(
    web: FlaskClient, served: Registry
) -> None:
    assert "No targets yet." in read(web, "/targets").text
    served.worker("w1")
    served.worker("old", GPU, clock=0)
    view = served.submit(targets=[V4, GPU])
    served.step(served.claim(view.builds[0].id), "compile", "running", detail="kernel 3 of <b>9</b>")
    served.services.workers.leave("old")
    page = read(web, "/targets")
    assert f"{GPU} no worker 0 0 0 1" in page.text
    assert "w1 busy vision/resnet18@1 compile kernel 3 of <b>9</b> 1 of 1" in page.text
    assert "EPYC, 2 cores" in page.text
    assert "in a sandbox" in page.text
    assert f"/builds/{view.builds[0].id}" in page.links
    assert "left" not in page.text
    assert "old left none" in read(web, "/targets?gone=1").text
    only = read(web, f"/targets?gone=1&target={GPU}")
    assert "w1" not in only.text
    assert "old left" in only.text
    assert "unknown target" in read(web, "/targets?target=%00", 422).text


@pytest.mark.parametrize("address", ["/", "/?q=vit", "/changes", "/targets", "/targets?gone=1"])
def test_these_pages_are_read_without_signing_in_and_kept_by_no_cache(web: FlaskClient, address: str) -> None:
    response = web.get(address)
    assert response.headers["Cache-Control"] == "private, no-cache"
    assert "Sign in" in Page(response.get_data(as_text=True)).text
