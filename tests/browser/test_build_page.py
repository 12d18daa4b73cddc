"""The page of a build in a real browser: it changes while the build runs, and its log is leafed through and searched."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.builds import LogLine, StepReport
from pt2hub.domain.tokens import Actor
from pt2hub.errors import Busy, CompileFailed, DatabaseUnavailable
from support.browser import settle, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from pt2hub.domain.builds import Claim
    from support.browser import Axe, Shoot, Watch
    from support.site import Site


@pytest.fixture
def claim(site: Site, request: pytest.FixtureRequest) -> Claim:
    """A build that runs, of a model of its own."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[-60:].strip("-")
    return site.registry.claim(site.registry.submit(model=f"browser/{name}").builds[0].id)


def say(site: Site, claim: Claim, first: int, *texts: str, level: str = "output") -> None:
    """Adds lines to a build's log, from this position on."""
    found = [LogLine(seq, time.time(), "compile", level, text) for seq, text in enumerate(texts, first)]
    site.container.builds.report(claim, [], found)


def begin(site: Site, claim: Claim, name: str, detail: str | None = None) -> None:
    site.container.builds.report(claim, [StepReport(name, "running", time.time(), None, detail)], [])


def line(page: Page, seq: int) -> str:
    return page.locator(f"#L{seq} code").inner_text()


def in_sight(page: Page, seq: int) -> bool:
    """Waits until a line is within what its list shows."""
    return bool(
        page.wait_for_function(
            """seq => {
                const box = document.querySelector(".lines").getBoundingClientRect();
                const line = document.getElementById(`L${seq}`)?.getBoundingClientRect();
                return Boolean(line) && line.top >= box.top - 1 && line.bottom <= box.bottom + 1;
            }""",
            arg=seq,
        )
    )


def test_lines_and_stages_come_while_the_page_is_open(
    site: Site, page: Page, claim: Claim, axe: Axe, shoot: Shoot
) -> None:
    page.goto(f"/builds/{claim.build}")
    page.locator(".answer", has_text="Starting for").wait_for()
    begin(site, claim, "fetch")
    site.container.builds.report(claim, [StepReport("fetch", "done", time.time() - 2, 2.0)], [])
    begin(site, claim, "export", "tracing <b>resnet</b>")
    row = page.locator("table.steps tr", has_text="export")
    row.get_by_text("tracing <b>resnet</b>").wait_for()
    say(site, claim, 1, "first line", "\x1b[1;32mgreen\x1b[0m <script>document.title = 'taken over'</script>")
    page.locator("#L2").wait_for()
    assert line(page, 2) == "green <script>document.title = 'taken over'</script>"
    assert "taken over" not in page.title()
    assert page.locator("#L2 .ink-2.t-bold").inner_text() == "green"

    say(site, claim, 3, *(f"line {seq}" for seq in range(3, 200)))
    page.locator("#L199").wait_for()
    page.wait_for_function("() => document.querySelector('.count').textContent === '199 lines'")
    assert in_sight(page, 199), "it follows"
    said = page.locator(".answer").inner_text()
    page.wait_for_function("said => document.querySelector('.answer').innerText !== said", arg=said)

    page.locator(".lines").evaluate("box => { box.scrollTop = 0; }")
    page.wait_for_function("() => document.querySelector('.follow').getAttribute('aria-pressed') === 'false'")
    say(site, claim, 200, "while the reader looks elsewhere")
    page.locator("#L200").wait_for(state="attached")
    assert in_sight(page, 1), "it does not jump"
    page.get_by_role("button", name="Follow").click()
    page.wait_for_function("() => document.querySelector('.follow').getAttribute('aria-pressed') === 'true'")
    assert in_sight(page, 200)
    axe(page)
    shoot(page, "build-running")

    say(site, claim, 201, "\x1b[31mg++ ended with 1\x1b[0m", level="error")
    site.container.builds.fail(
        claim, CompileFailed("g++ ended with 1", where="compile", hint="Look at its last words.")
    )
    page.locator(".problem", has_text="Look at its last words.").wait_for()
    page.locator("[data-live=state][data-finished=true]").wait_for(state="attached")
    page.get_by_role("link", name="Show the error in the log").click()
    page.locator("#L201.here").wait_for()
    assert page.url.endswith(f"/builds/{claim.build}?at=201#L201")
    assert page.get_by_role("button", name="Follow").count() == 0
    axe(page)
    shoot(page, "build-failed")


def test_a_build_is_cancelled_and_tried_again_with_two_clicks(site: Site, page: Page, claim: Claim) -> None:
    sign_in(page, site)
    page.goto(f"/builds/{claim.build}")
    page.locator("summary", has_text="Cancel").click()
    page.get_by_role("button", name="Cancel build").click()
    page.locator(".done", has_text="Build cancelled").wait_for()
    assert site.container.builds.view(claim.build).state == "cancelled"
    page.get_by_label("with priority").fill("5")
    page.get_by_role("button", name="Retry").click()
    page.locator(".done", has_text="Build queued again").wait_for()
    view = site.container.builds.view(claim.build)
    assert (view.state, view.priority) == ("queued", 5)
    assert page.locator("summary", has_text="Cancel").count() == 1


def test_the_page_goes_on_with_the_next_attempt(site: Site, page: Page, claim: Claim) -> None:
    say(site, claim, 1, "of the first attempt")
    page.goto(f"/builds/{claim.build}")
    page.locator("#L1", has_text="of the first attempt").wait_for()
    site.container.builds.retry_later(claim, DatabaseUnavailable("away"))
    page.locator(".answer", has_text="Waits").wait_for()
    site.registry.sql("UPDATE builds SET not_before = NULL WHERE id = %s", claim.build)
    second = site.registry.claim(claim.build)
    say(site, second, 1, "of the second attempt")
    page.locator("#L1", has_text="of the second attempt").wait_for()
    assert page.locator("#L1").count() == 1
    page.get_by_role("link", name="log of attempt 1").click()
    page.locator("#L1", has_text="of the first attempt").wait_for()


def test_a_search_goes_from_match_to_match_and_back_without_loading_the_page(
    site: Site, page: Page, claim: Claim
) -> None:
    texts = [f"line {seq}" for seq in range(1, 3001)]
    for seq in (10, 1500, 2990):
        texts[seq - 1] = f"a \x1b[31mNee\x1b[32mdle\x1b[0m in line {seq}"
    say(site, claim, 1, *texts)
    page.goto(f"/builds/{claim.build}")
    page.locator("#L3000").wait_for()
    page.evaluate("() => { window.loaded = 'once'; }")
    field = page.get_by_role("searchbox", name="Search this log")
    field.fill("needle")
    for number, seq in enumerate((10, 1500, 2990), 1):
        field.press("Enter")
        page.get_by_text(f"{number} of 3 lines").wait_for()
        assert page.locator("mark").count() == 2
        assert in_sight(page, seq)
        assert f"at={seq}" in page.url
        assert field.evaluate("field => field === document.activeElement")
    page.get_by_role("link", name="Previous").click()
    page.get_by_text("2 of 3 lines").wait_for()
    page.go_back()
    page.get_by_text("3 of 3 lines").wait_for()
    page.get_by_role("link", name="Clear").click()
    page.wait_for_function("() => !document.querySelector('mark')")
    page.get_by_role("link", name="Beginning").click()
    page.locator("#L1").wait_for()
    assert in_sight(page, 1)
    page.get_by_role("link", name="Later lines").click()
    page.locator("#L1001").wait_for()
    page.get_by_role("link", name="End", exact=True).click()
    page.locator("#L3000").wait_for()
    assert in_sight(page, 3000)
    assert page.evaluate("() => window.loaded") == "once"
    say(site, claim, 3001, "and it follows again")
    page.locator("#L3001").wait_for()


def test_lines_that_arrive_after_a_search_leave_its_window_alone(
    site: Site, page: Page, claim: Claim
) -> None:
    say(site, claim, 1, "needle", *(f"line {seq}" for seq in range(2, 3001)))
    page.goto(f"/builds/{claim.build}")
    page.locator("#L3000").wait_for()
    settle(page)
    held: list[Route] = []
    page.route("**/lines?*rows=1*", lambda route: held.append(route))  # noqa: PLW0108  # a builtin is no handler
    with page.expect_request("**/lines?*rows=1*"):
        say(site, claim, 3001, "asked for before the search, and answered after it")
    field = page.get_by_role("searchbox", name="Search this log")
    field.fill("needle")
    field.press("Enter")
    page.get_by_text("1 of 1 line").wait_for()
    assert in_sight(page, 1)
    with page.expect_response("**/lines?*rows=1*") as answer:
        held[0].continue_()
    answer.value.finished()
    settle(page)
    assert in_sight(page, 1)
    assert page.locator("#L3001").count() == 0


def test_who_finds_no_place_among_the_followers_asks_again_and_again(
    site: Site, page: Page, claim: Claim, watch: Watch
) -> None:
    page.route("**/events", lambda route: route.fulfill(status=503, json=Busy("full").as_dict()))
    page.goto(f"/builds/{claim.build}")
    page.locator(".lines").wait_for()
    say(site, claim, 1, "it comes a little later")
    page.locator("#L1").wait_for()
    site.container.builds.cancel(claim.build, Actor("somebody"))
    page.locator(".answer", has_text="Cancelled by somebody").wait_for()
    watch.forgive()  # the refusal is in the console


def test_without_scripts_a_log_is_searched_and_leafed_through(
    site: Site, plain_page: Page, claim: Claim
) -> None:
    say(site, claim, 1, *(f"line {seq}" for seq in range(1, 2501)))
    plain_page.goto(f"/builds/{claim.build}")
    plain_page.locator("#L2500").wait_for(state="attached")
    plain_page.get_by_role("searchbox", name="Search this log").fill("line 77")
    plain_page.get_by_role("searchbox", name="Search this log").press("Enter")
    plain_page.locator("#L77.here").wait_for()
    assert plain_page.url.endswith("?q=line+77&at=77#L77")
    plain_page.get_by_role("link", name="Next").click()
    plain_page.locator("#L770.here").wait_for()
    plain_page.get_by_role("link", name="Beginning").click()
    plain_page.get_by_role("link", name="Later lines").click()
    plain_page.locator("#L2000").wait_for(state="attached")
    plain_page.get_by_text("Reload the page to see new lines.")


RECORDER = """
    window.notices = [];
    window.Notification = class extends EventTarget {
        static permission = "default";
        static requestPermission() {
            this.permission = sessionStorage.getItem("answer") ?? "granted";
            return Promise.resolve(this.permission);
        }
        constructor(title, options) {
            super();
            window.notices.push([title, options.body, options.tag]);
        }
    };
"""
HIDE = """() => {
    Object.defineProperty(document, "hidden", {value: true, configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""
NOTICES = "() => window.notices"


def test_a_reader_who_asks_is_notified_when_a_build_ends_also_from_a_hidden_tab(
    site: Site, page: Page, claim: Claim
) -> None:
    page.context.grant_permissions(["notifications"])
    page.add_init_script(RECORDER)
    page.clock.install()
    page.goto(f"/builds/{claim.build}")
    button = page.get_by_role("button", name="Notify me when it ends")
    assert button.get_attribute("aria-pressed") == "false", "off until it is asked for"
    button.click()
    page.locator("[data-notify][aria-pressed=true]").wait_for()
    begin(site, claim, "compile")
    page.locator(".answer", has_text="Compiling").wait_for()
    assert page.evaluate(NOTICES) == []
    page.evaluate(HIDE)
    site.container.builds.fail(claim, CompileFailed("g++ ended with 1", where="compile"))
    page.clock.fast_forward(16_000)
    page.wait_for_function("() => window.notices.length")
    (notice,) = page.evaluate(NOTICES)
    assert re.fullmatch(rf"{claim.model}@1 for CPU v4 · torch [0-9.]+", notice[0])
    assert re.fullmatch(r"Failed in compile after [0-9.]+ m?s: compile_failed\.", notice[1])
    page.clock.fast_forward(60_000)
    settle(page)
    assert len(page.evaluate(NOTICES)) == 1
    assert not button.is_visible()


def test_a_hidden_tab_that_nobody_asked_to_notify_asks_for_nothing(
    site: Site, page: Page, claim: Claim
) -> None:
    page.add_init_script(RECORDER)
    page.clock.install()
    page.goto(f"/builds/{claim.build}")
    page.locator("[data-notify][data-ready]").wait_for()
    page.evaluate(HIDE)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    site.container.builds.cancel(claim.build, Actor("somebody"))
    page.clock.fast_forward(60_000)
    settle(page)
    assert (asked, page.evaluate(NOTICES)) == ([], [])


def test_a_browser_that_blocks_notifications_says_so(page: Page, claim: Claim) -> None:
    page.add_init_script(RECORDER)
    page.goto(f"/builds/{claim.build}")
    page.evaluate("() => sessionStorage.setItem('answer', 'denied')")
    page.get_by_role("button", name="Notify me when it ends").click()
    page.get_by_text("The browser's settings block notifications of this site.").wait_for()
    assert page.locator("[data-notify]").get_attribute("aria-pressed") == "false"
