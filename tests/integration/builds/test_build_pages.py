"""Pages of builds, without a browser: lists, stages, logs, cancelling and trying again."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from pt2hub.domain.builds import LogLine, StepReport
from pt2hub.domain.reading import EVERYTHING, Readable
from pt2hub.domain.tokens import Actor
from pt2hub.errors import CompileFailed, DatabaseUnavailable
from pt2hub.server.db.reading import limit_reading
from pt2hub.server.services.builds import log_windows
from support.pages import Page
from support.registry import V3, V4, Registry

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.domain.builds import Claim
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container

FORM = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def hub(container: Container, config: ServerConfig) -> Registry:
    """The services behind the pages."""
    return Registry(container, str(config.database_url))


def read(web: FlaskClient, address: str, status: int = 200) -> Page:
    response = web.get(address)
    assert response.status_code == status, response.get_data(as_text=True)
    return Page(response.get_data(as_text=True))


def logged(hub: Registry, *texts: str, level: str = "output") -> Claim:
    """A running build that printed these lines."""
    claim = hub.claim(hub.submit().builds[0].id)
    found = [LogLine(seq, time.time(), "compile", level, text) for seq, text in enumerate(texts, 1)]
    hub.services.builds.report(claim, [StepReport("compile", "running", time.time())], found)
    return claim


def test_builds_are_listed_and_chosen_and_paged_by_key(web: FlaskClient, hub: Registry) -> None:
    assert "No builds yet" in read(web, "/builds").text
    hub.worker("w1")
    for number in range(60):
        hub.submit(model=f"vision/net{number}", targets=[V4])
    failed = hub.claim(hub.submit(model="vision/broken", targets=[V3]).builds[0].id)
    hub.services.builds.fail(failed, CompileFailed("g++ ended with 1"))

    first = read(web, "/builds")
    assert "compile_failed" in first.text
    following = [link for link in first.links if "after=" in link]
    assert len(following) == 1
    assert "net0@" in read(web, following[0]).text
    for query, there, absent in (
        ("state=failed", "broken", "net1"),
        (f"target={V3}", "broken", "net1"),
        ("model=vision/net7", "net7", "broken"),
        ("model=vision/net7@1", "net7", "broken"),
        ("kind=measure", "No builds match", "broken"),
        ("state=queued&target=" + V4, "1st", "broken"),
        ("state=failed&days=7", "broken", "net1"),
        ("model=vision/net7&days=1", "net7", "broken"),
    ):
        text = read(web, f"/builds?{query}").text
        assert there in text, query
        assert f"{absent}@" not in text, query
    assert "after=" in next(link for link in read(web, "/builds?sort=oldest").links if "sort=oldest" in link)
    for order, there in (("oldest", "net0@"), ("ended", "broken@"), ("longest", "broken@")):
        assert there in read(web, f"/builds?sort={order}").text
    hub.sql("UPDATE builds SET finished_at = now() - interval '8 days' WHERE id = %s", failed.build)
    assert "No builds match" in read(web, "/builds?state=failed&days=7").text
    assert "broken@" in read(web, "/builds?state=failed&days=9").text
    alone = web.get("/builds?part=list&state=queued").get_data(as_text=True)
    assert alone.count("data-row=") == 50
    assert 'data-open="true"' in alone
    assert "<html" not in alone


@pytest.mark.parametrize(
    "query",
    [
        "state=sideways",
        "kind=x",
        "target=nonsense",
        "model=nobody/nothing",
        "model=a/b@prod",
        "model=a/b@99999999999",
        "days=0",
        "days=soon",
        "sort=sideways",
    ],
)
def test_a_wrong_choice_comes_back_to_be_mended(web: FlaskClient, query: str) -> None:
    response = web.get(f"/builds?{query}")
    assert response.status_code in (404, 422)
    typed = query.partition("=")[2]
    assert typed in response.get_data(as_text=True)
    assert 'role="alert"' in response.get_data(as_text=True)


def test_hostile_lines_are_shown_as_text_in_their_colours(web: FlaskClient, hub: Registry) -> None:
    claim = logged(
        hub,
        "<script>alert(1)</script><img src=x onerror=alert(2)>",
        "\x1b[1;31mred\x1b[0m \x1b]8;;javascript:alert(3)\x1b\\link\x1b]8;;\x1b\\ \x1b]0;title\x07",
        "\x1b[2J\x1b[1;1Hmoved \x00 \u202egnp.exe",
        "wide " * 40_000,
        "</code></li></ol></section><form action=//evil.example>",
    )
    html = web.get(f"/builds/{claim.build}").get_data(as_text=True)
    page = Page(html)
    assert "<script>alert(1)</script><img src=x onerror=alert(2)>" in page.text
    assert '<span class="ink-1 t-bold">red</span> link' in html
    assert "javascript:" not in html
    assert "moved \ufffd [U+202E]gnp.exe" in page.text
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "<form action=//evil.example>" in page.text
    assert html.count("<script") == html.count('<script type="module" src="/static/')
    text = web.get(f"/api/v1/builds/{claim.build}/log?attempt=1").get_data(as_text=True)
    assert "\x1b[1;31mred" in text, "the download is whole"


def test_a_long_log_is_shown_in_windows_with_links_to_its_ends_and_its_error(
    web: FlaskClient, hub: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_windows, "MAX_WINDOW_LINES", 10)
    claim = hub.claim(hub.submit().builds[0].id)
    levels = {20: "error", 33: "compiler", 34: "compiler"}
    found = [
        LogLine(seq, time.time(), "compile", levels.get(seq, "info"), f"line {seq}.") for seq in range(1, 41)
    ]
    hub.services.builds.report(claim, [], found)

    def numbers(address: str) -> list[int]:
        return [int(seq) for seq in re.findall(r'<li id="L(\d+)"', web.get(address).get_data(as_text=True))]

    address = f"/builds/{claim.build}"
    page = read(web, address)
    assert numbers(address) == [29, 30, 31, 32, 35, 36, 37, 38, 39, 40]
    assert "2 lines of compiler output" in page.text
    assert numbers(f"{address}?whole=1") == [*range(31, 41)]
    (earlier,) = (link for link in page.links if "before=" in link)
    assert numbers(earlier) == [*range(19, 29)]
    (later,) = (link for link in read(web, earlier).links if "after=" in link and "after=0" not in link)
    assert numbers(later) == [29, 30, 31, 32, 35, 36, 37, 38, 39, 40]
    (error,) = (link for link in page.links if link.endswith("#L20"))
    assert 20 in numbers(error)
    assert 'class="error here"' in web.get(error).get_data(as_text=True)
    fresh = web.get(f"{address}/lines?rows=1&attempt=1&after=38").get_data(as_text=True)
    assert re.findall(r'id="L(\d+)"', fresh) == ["39", "40"]
    assert 'data-seen="40" data-last="40" data-later="false"' in fresh
    for wrong in ("at=-1", "at=x", "attempt=0", "after=99999999999", "whole=perhaps"):
        assert web.get(f"{address}?{wrong}").status_code == 422
    assert web.get(f"{address}?attempt=7").status_code == 404


def test_a_search_leads_to_the_first_match_and_on_to_the_others(web: FlaskClient, hub: Registry) -> None:
    claim = logged(hub, "one", "a \x1b[31mNeed\x1b[32mle\x1b[0m here", "two", "<needle>", "three")
    response = web.get(f"/builds/{claim.build}?q=needle")
    assert response.status_code == 303
    target = urlsplit(response.headers["Location"])
    assert (target.query, target.fragment) == ("q=needle&at=2", "L2")
    page = read(web, f"{target.path}?{target.query}")
    assert "1 of 2 lines" in page.text
    (following,) = {
        link for link in page.links if "at=4" in link and "q=needle" in link and "Next" in page.text
    }
    html = web.get(following).get_data(as_text=True)
    assert "2 of 2 lines" in Page(html).text
    assert "&lt;<mark>needle</mark>&gt;" in html
    assert "0 lines" in read(web, f"/builds/{claim.build}?q=absent").text
    refused = web.get(f"/builds/{claim.build}?q={'x' * 300}")
    assert refused.status_code == 422
    assert "at most 200" in refused.get_data(as_text=True)


def test_a_failed_build_says_why_and_where_and_is_tried_again(signed_in: FlaskClient, hub: Registry) -> None:
    claim = logged(hub, "\x1b[31mg++ failed\x1b[0m", level="error")
    hub.services.builds.fail(
        claim, CompileFailed("\x1b[31mg++\x1b[0m ended with <b>1</b>", where="compile", hint="Ask <i>us</i>.")
    )
    page = read(signed_in, f"/builds/{claim.build}")
    assert "g++ ended with <b>1</b>" in page.text
    assert "Ask <i>us</i>." in page.text
    assert any(link.endswith("at=1#L1") for link in page.links)
    form = {"priority": "lots"}
    refused = signed_in.post(f"/builds/{claim.build}/retry", data=form, headers=FORM)
    assert refused.status_code == 422
    assert dict(Page(refused.get_data(as_text=True)).fields)["priority"] == "lots"
    form["priority"] = "7"
    done = signed_in.post(f"/builds/{claim.build}/retry", data=form, headers=FORM)
    assert (done.status_code, done.headers["Location"]) == (303, f"/builds/{claim.build}?done=retried")
    page = read(signed_in, done.headers["Location"])
    assert "queued again" in page.text
    view = hub.services.builds.view(claim.build)
    assert (view.state, view.priority) == ("queued", 7)
    again = signed_in.post(f"/builds/{claim.build}/retry", data=form, headers=FORM)
    assert again.status_code == 409
    assert "is already queued" in again.get_data(as_text=True)


def test_a_build_is_cancelled_by_who_signed_in_and_nobody_else(
    web: FlaskClient, hub: Registry, container: Container
) -> None:
    build = hub.submit().builds[0].id
    page = read(web, f"/builds/{build}")
    assert "Sign in to cancel" in page.text
    assert "No log yet" in page.text
    assert web.post(f"/builds/{build}/cancel", headers=FORM).status_code == 401
    assert hub.services.builds.view(build).state == "queued"
    token = container.access.create_token("someone")
    web.post("/sign-in", data={"token": token}, headers=FORM)
    done = web.post(f"/builds/{build}/cancel", headers=FORM)
    assert (done.status_code, done.headers["Location"]) == (303, f"/builds/{build}?done=cancelled")
    page = read(web, done.headers["Location"])
    assert "The build was cancelled" in page.text
    assert "someone" in page.text, "who did it"
    assert "This attempt left no log" not in page.text


def test_a_cancelled_build_shows_the_stage_that_it_met_as_cancelled_and_so_does_its_version(
    web: FlaskClient, hub: Registry
) -> None:
    claim = logged(hub, "a line")
    hub.services.builds.cancel(claim.build, by=Actor("mary"))
    html = web.get(f"/builds/{claim.build}").get_data(as_text=True)
    page = Page(html)
    assert "The build was cancelled." in page.text
    assert "compile cancelled" in page.text
    assert "failed" not in page.text
    assert '<rect class="cancelled"' in html
    assert '<th scope="col" class="number">Share</th>' in html
    assert hub.services.publish.version(claim.model, 1).readiness == "cancelled"
    assert hub.services.catalog.versions(claim.model).versions[0].readiness == "cancelled"
    assert hub.services.catalog.versions(claim.model).versions[0].readiness == "cancelled"
    assert web.get(f"/api/v1/models/{claim.model}/versions/1").get_json()["readiness"] == "cancelled"
    assert f"{claim.model}@1 cancelled" in read(web, f"/models/{claim.model}/versions/1").text
    hub.services.builds.retry(claim.build, by=Actor("mary"))
    hub.services.builds.fail(hub.claim(claim.build), CompileFailed("no"))
    assert hub.services.publish.version(claim.model, 1).readiness == "failed"


def test_of_hundreds_of_attempts_the_newest_are_listed_and_all_can_be_read(
    web: FlaskClient, hub: Registry
) -> None:
    claim = logged(hub, "the first")
    hub.services.builds.hand_back(claim)
    hub.sql(
        "INSERT INTO build_attempts (build_id, attempt, worker_id, ended_at, outcome) "
        "SELECT %s, number, 'w1', now(), 'handed_back' FROM generate_series(2, 200) AS number",
        claim.build,
    )
    hub.sql("UPDATE builds SET attempt = 200 WHERE id = %s", claim.build)
    page = read(web, f"/builds/{claim.build}")
    assert page.text.count("log of attempt") == 20
    assert "180 earlier attempts are not shown." in page.text
    assert "the first" in read(web, f"/builds/{claim.build}?attempt=1").text


def test_a_build_that_waits_says_why(web: FlaskClient, hub: Registry) -> None:
    hub.worker("w1", V4)
    hub.submit(model="a/first")
    second = hub.submit(model="a/second").builds[0].id
    queued = read(web, f"/builds/{second}").text
    assert "Waits for a worker of CPU v4 · torch 2.13, 2nd in the queue." in queued
    assert "2nd in the queue for this target" in queued
    hub.silence("w1")
    lonely = read(web, f"/builds/{second}").text
    assert "Waits for a worker of CPU v4 · torch 2.13: none is live; last heartbeat 1 h ago." in lonely
    assert f"pt2hub worker --target {V4}" in lonely


def test_each_attempt_has_its_log_and_the_stages_are_those_of_the_latest(
    web: FlaskClient, hub: Registry
) -> None:
    first = logged(hub, "from the first")
    hub.services.builds.retry_later(first, DatabaseUnavailable("away"))
    hub.sql("UPDATE builds SET not_before = NULL")
    second = hub.claim(first.build)
    hub.services.builds.report(
        second,
        [
            StepReport("fetch", "done", time.time(), 1.5),
            StepReport("reuse", "running", time.time(), None, "code of \x1b[31m<b>another</b>"),
        ],
        [LogLine(1, time.time(), "fetch", "info", "from the second")],
    )
    page = read(web, f"/builds/{first.build}")
    assert "from the second" in page.text
    assert "from the first" not in page.text
    assert "1.5 s" in page.text
    assert "code of <b>another</b>" in page.text
    assert "compile or reuse" not in page.text
    assert "database_unavailable" in page.text
    assert "from the first" in read(web, f"/builds/{first.build}?attempt=1").text
    live = web.get(f"/builds/{first.build}/steps").get_data(as_text=True)
    assert 'data-finished="false" data-attempt="2"' in live
    assert [*re.findall(r'data-live="(\w+)"', live)] == [
        "state",
        "answer",
        "actions",
        "steps",
        "attempts",
        "facts",
    ]


def ended(hub: Registry, seconds: dict[str, float], **changes: Any) -> str:
    """A build that succeeded, whose steps took so long."""
    claim = hub.claim(hub.submit(**changes).builds[0].id)
    reports = [StepReport(name, "done", time.time(), took) for name, took in seconds.items()]
    hub.services.builds.report(claim, reports, [])
    hub.sql("UPDATE builds SET state = 'succeeded' WHERE id = %s", claim.build)
    return claim.build


def test_how_long_it_takes_is_known_from_the_models_earlier_builds_else_from_the_targets(
    web: FlaskClient, hub: Registry
) -> None:
    steps = ("fetch", "export", "key", "compile", "pack", "verify", "upload", "publish")
    hub.worker("w1")
    alone = hub.submit(model="a/alone").builds[0].id
    assert "usually" not in read(web, f"/builds/{alone}").text, "without history no estimate is claimed"
    for tolerance, factor in ((0.01, 1.0), (0.02, 2.0), (0.03, 9.0)):
        ended(hub, dict.fromkeys(steps, 10.0 * factor), model="a/net", checks={"tolerance": tolerance})
    claim = hub.claim(hub.submit(model="a/net", checks={"tolerance": 0.04}).builds[0].id)
    hub.sql(
        "UPDATE build_attempts SET started_at = now() - interval '25 seconds' WHERE build_id = %s",
        claim.build,
    )
    hub.services.builds.report(claim, [StepReport("fetch", "running", time.time() - 15)], [])
    text = read(web, f"/builds/{claim.build}").text
    assert re.search(r"Fetching for 1[5-8] s, about 2 min 20 s left \(usually 2 min 40 s\)\.", text), text
    assert "the medians of the last 3 builds of this model for this target" in text
    other = hub.submit(model="b/other").builds[0].id
    text = read(web, f"/builds/{other}").text
    assert "It usually takes 2 min 40 s." in text
    assert "the medians of the last 3 builds of any model for this target" in text
    elsewhere = hub.submit(model="b/elsewhere", targets=[V3]).builds[0].id
    assert "usually" not in read(web, f"/builds/{elsewhere}").text


def test_models_that_may_not_be_read_lend_no_times(hub: Registry) -> None:
    ended(hub, {"fetch": 10.0, "compile": 30.0}, model="secret/net")
    other = hub.services.builds.view(hub.submit(model="b/other").builds[0].id)
    assert hub.services.step_durations.earlier(other).medians == {"fetch": 10.0, "compile": 30.0}
    limit_reading(Readable(("b/*",)))
    try:
        assert hub.services.step_durations.earlier(other).builds == 0
    finally:
        limit_reading(EVERYTHING)


def test_a_step_that_takes_longer_than_usual_says_so_and_a_wrong_clock_stays_within_its_attempt(
    web: FlaskClient, hub: Registry
) -> None:
    steps = ("fetch", "export", "key", "compile", "pack", "verify", "upload", "publish")
    ended(hub, dict.fromkeys(steps, 5.0), model="a/net")
    claim = hub.claim(hub.submit(model="a/net", checks={"tolerance": 0.04}).builds[0].id)
    hub.services.builds.report(claim, [StepReport("fetch", "running", time.time() - 3600)], [])
    assert re.search(r"Fetching for [0-5] s, about", read(web, f"/builds/{claim.build}").text)
    hub.sql(
        "UPDATE build_attempts SET started_at = now() - interval '60 seconds' WHERE build_id = %s",
        claim.build,
    )
    html = web.get(f"/builds/{claim.build}").get_data(as_text=True)
    text = Page(html).text
    assert re.search(r"Fetching for 1 min [0-5] s, longer than usual \(5 s\); 35 s left after it\.", text), (
        text
    )
    assert 'class="running endless"' in html


@pytest.mark.parametrize("build", ["missing", "%00", "a%20b", "x" * 500, "..%2fetc"])
def test_an_unknown_build_is_not_found(web: FlaskClient, build: str) -> None:
    for path in ("", "/lines", "/steps"):
        assert web.get(f"/builds/{build}{path}").status_code == 404


@pytest.mark.usefixtures("no_collector")
def test_a_window_of_a_thousand_lines_takes_little_time_to_render(web: FlaskClient, hub: Registry) -> None:
    found = [
        LogLine(seq, time.time(), "compile", "output", f"\x1b[32m{datetime.now(UTC):%c}\x1b[0m " + "x" * 80)
        for seq in range(1, 3001)
    ]
    claim = hub.claim(hub.submit().builds[0].id)
    hub.services.builds.report(claim, [], found)
    web.get(f"/builds/{claim.build}")
    began = time.thread_time()
    html = web.get(f"/builds/{claim.build}?at=1500").get_data(as_text=True)
    seconds = time.thread_time() - began
    print(f"{seconds:.3f} s, {len(html)} bytes")
    assert html.count("<li id=") == 1000
    assert seconds < 2.0
