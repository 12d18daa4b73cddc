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
    assert "pt2hub spec init SPEC.yaml" in page.text
    assert "pt2hub publish SPEC.yaml --wait" in page.text
    assert "no live worker" in page.text


def test_the_front_page_says_whether_production_is_fine_what_changed_and_what_failed(
    web: FlaskClient, served: Registry
) -> None:
    for tolerance, said in ((0.1, "one version measured"), (0.2, "inconclusive")):
        served.published(served.submit(checks={"tolerance": tolerance}))
        assert said in read(web, "/").text
    for alias, number in (("candidate", 2), ("prod", 1)):
        served.services.aliases.move(MODEL, alias, number, expected=None, reason="first", by=Actor("t"))
    assert "Production is fine: no regressions, no failed builds." in read(web, "/").text
    failing = served.submit(checks={"tolerance": 0.3}).builds[0].id
    served.services.builds.fail(served.claim(failing), CompileFailed("no <b>such</b> thing"))
    flag(served, 2)
    assert "1 build failed." in read(web, "/").text  # version 2 is not in production
    served.services.aliases.move(MODEL, "prod", 2, expected=1, reason="second", by=Actor("t"))
    page = read(web, "/")
    assert "1 model in production is slower than before; 1 build failed." in page.text
    assert (
        "Production is 15.0 % slower at batch 2 since version 2 on CPU v4"
        in read(web, f"/models/{MODEL}").text
    )
    assert "vision/resnet18@2 is 15.0 % slower since 2 on CPU v4" in page.text
    assert "vision/resnet18@3 failed on CPU v4" in page.text
    assert "compile_failed" in page.text
    assert "1 failed in 7 days · 1 flagged as worse, 0 as better in 30 days" in page.text
    known = {
        f"/models/{MODEL}",
        f"/models/{MODEL}/versions/2",
        f"/models/{MODEL}/versions/3",
        f"/models/{MODEL}/aliases/prod",
        f"/models/{MODEL}/performance?metric=latency_p50&target={V4}",
        f"/models/{MODEL}/performance?metric=latency_p50&target={V4}&batch=2",
        f"/compare?before=vision/resnet18@1&after=vision/resnet18@2&target={V4}",
        f"/builds/{failing}",
        "/builds?state=failed&days=7&sort=ended",
        "/changes?outcome=worse&since=30",
    }
    assert known <= set(page.links)


def test_the_list_refreshes_in_parts_and_names_are_text(web: FlaskClient, served: Registry) -> None:
    served.submit()
    served.sql("UPDATE models SET description = '<script>alert(1)</script> sorts pictures'")
    whole = web.get("/").get_data(as_text=True)
    assert "<script>alert" not in whole
    assert "&lt;script&gt;alert(1)&lt;/script&gt; sorts pictures" in whole
    part = web.get("/?part=list").get_data(as_text=True)
    assert "<html" not in part
    assert [f'data-part="{name}"' in part for name in ("attention", "totals", "models", "pages")] == [
        True
    ] * 4
    assert f'data-row="{MODEL}"' in part


def test_more_than_a_few_things_that_need_somebody_are_behind_a_link(
    web: FlaskClient, served: Registry
) -> None:
    for number in range(9):
        build = served.submit(model=f"team/m{number}").builds[0].id
        served.services.builds.fail(served.claim(build), CompileFailed("no"))
    page = read(web, "/")
    assert (page.text.count("failed on"), "3 more" in page.text) == (6, True)
    assert read(web, "/?all=1").text.count("failed on") == 9


def test_a_teams_page_begins_with_what_needs_somebody_of_that_team(
    web: FlaskClient, served: Registry
) -> None:
    for team in ("vision", "demo-vision", "nlp"):
        build = served.submit(model=f"{team}/net").builds[0].id
        served.services.builds.fail(served.claim(build), CompileFailed("no"))
    served.published(served.submit(model="audio/net"))
    for address in ("/models/vision", "/?team=vision"):
        page = read(web, address)
        assert "1 build failed." in page.text
        assert page.text.count("failed on") == 1
        assert [link for link in page.links if link == "/models/nlp/net"] == []
        assert 'data-part="totals"' not in web.get(address).get_data(as_text=True)
    assert "3 builds failed" in read(web, "/").text
    assert "No builds failed." in read(web, "/models/audio").text
    assert "failed on" not in read(web, "/models/vision?alias=prod").text, "it is about all of the team"


def test_models_come_in_pages_and_only_the_first_says_what_goes_on(
    web: FlaskClient, served: Registry
) -> None:
    served.sql(
        "INSERT INTO models (name) SELECT 'team/m' || lpad(n::text, 2, '0') FROM generate_series(1, 60) AS n"
    )
    address, seen = "/", []
    while address:
        page = read(web, address)
        assert ("no live worker" in page.text) == (address == "/")
        seen += [link for link in page.links if link.startswith("/models/") and link.count("/") == 3]
        address = next((link for link in page.links if link.startswith("/?after=")), "")
    assert seen == [f"/models/team/m{number:02}" for number in range(1, 61)]


def test_a_part_of_the_name_finds_models_keeps_what_was_typed_and_pages(
    web: FlaskClient, served: Registry
) -> None:
    served.sql("INSERT INTO models (name) SELECT 'nlp/bert' || n FROM generate_series(1, 26) AS n")
    served.sql("INSERT INTO models (name) VALUES ('vision/vit')")
    page = read(web, "/?q=BERT")
    assert ("q", "BERT") in page.fields
    assert "vision/vit" not in page.text
    following = next(link for link in page.links if link.startswith("/?q=BERT&after="))
    assert "nlp/bert9" in read(web, following).text
    assert "No models match." in read(web, "/?q=%25_<b>").text
    assert "No models match" in read(web, f"/?q={'x' * 3000}").text
    assert "Models matching" not in read(web, "/?q=%00%20").text
    assert "invalid model name" in read(web, "/?after=%00", 422).text


def test_filters_and_the_order_are_in_the_address_and_wrong_ones_come_back(
    web: FlaskClient, served: Registry
) -> None:
    served.published(served.submit(labels={"owner": "search"}))
    for query in ("alias=none", "team=vision", "label=owner", f"target={V4}", "sort=name", "sort=recent"):
        page = read(web, f"/?{query}")
        assert f"/models/{MODEL}" in page.links, query
    for query in ("alias=prod", "team=nlp", "label=owner=ranking", f"target={GPU}"):
        page = read(web, f"/?{query}")
        assert "No models match." in page.text, query
    for query, said in (
        ("alias=some", "Invalid alias"),
        ("sort=size", "Must be one of change, recent, name."),
        ("label=ownre", "Did you mean owner?"),
        ("label==", "label"),
        ("target=nowhere", "unknown target"),
    ):
        assert said in read(web, f"/?{query}", 422).text, query
    assert ("label", "ownre") in read(web, "/?label=ownre", 422).fields


def test_a_name_of_200_characters_and_a_hundred_targets_fit(web: FlaskClient, served: Registry) -> None:
    long = f"team/{'n' * 195}"
    served.submit(model=long)
    served.sql(
        "INSERT INTO targets (name, torch, device, arch, cuda, os, machine) SELECT 'torch2.' || n || '-cu130-sm90', "
        "'2.' || n, 'cuda', 'sm90', '130', 'linux', 'x86_64' FROM generate_series(20, 119) AS n"
    )
    for address in ("/", "/versions", "/builds", f"/search?q={long[:150]}"):
        assert f"/models/{long}" in "".join(read(web, address).links), address
    assert "H100 · torch 2.119" in read(web, "/").text


def test_a_teams_models_have_an_address_and_so_has_the_list(web: FlaskClient, served: Registry) -> None:
    for name in ("vision/resnet18", "vision/vit", "demo-vision/resnet18"):
        served.submit(model=name)
    assert web.get("/models?q=vit").headers["Location"] == "/?q=vit"
    page = read(web, "/models/vision?sort=name")
    assert [link for link in page.links if link.startswith("/models/") and link.count("/") == 3] == [
        "/models/vision/resnet18",
        "/models/vision/vit",
    ]
    rest = read(web, "/models/vision?sort=name&after=vision/resnet18")
    assert ("/models/vision?sort=name" in rest.links, "/models/vision/resnet18" in rest.links) == (
        True,
        False,
    )
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
    assert "1 regression in the last 30 days" in read(web, "/changes?since=30").text
    for version, owner in ((None, "vision team"), (2, "<b>ann</b>")):
        labels = {"put": {"owner": owner}, "remove": [], "expected": {}, "by": Actor("t")}
        served.services.labels.change(MODEL, version, **labels)
    owned = read(web, "/changes").text
    assert "owned by <b>ann</b> · published" in owned  # the version's own
    assert "owned by vision team · published" in owned
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
    assert "no worker 0 0 0 1" in page.text
    assert "1 of 2 targets has a live worker; nothing serves" in page.text
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
    for order in ("name", "workers", "running", "queued"):
        assert "no worker 0 0 0 1" in read(web, f"/targets?sort={order}").text
    assert "Invalid sort" in read(web, "/targets?sort=size", 422).text
    named = read(web, "/targets?q=SM90&sort=name")
    assert ("no worker 0 0 0 1" in named.text, f"/builds?target={V4}" in named.links) == (True, False)
    assert "No target has “tpu” in its name." in read(web, "/targets?q=tpu").text
    assert "/models/vision" in read(web, "/usage?q=vis").links
    assert "No team has “sound” in its name." in read(web, "/usage?q=sound").text
    for order in ("models", "stored", "builds"):
        assert "vision stores" in read(web, f"/usage?sort={order}").text
    assert "Invalid sort" in read(web, "/usage?sort=size", 422).text


@pytest.mark.parametrize("address", ["/", "/?q=vit", "/changes", "/targets", "/targets?gone=1"])
def test_these_pages_are_read_without_signing_in_and_kept_by_no_cache(web: FlaskClient, address: str) -> None:
    response = web.get(address)
    assert response.headers["Cache-Control"] == "private, no-cache"
    assert "Sign in" in Page(response.get_data(as_text=True)).text
