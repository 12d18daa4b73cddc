"""What holds for every page, in a real browser on a server with the demo's data; pictures go to build/screenshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.browser import DESK, Watch, open_context, settle, shifts, sign_in, wider
from support.crawling import Visit, crawl, kinds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from support.browser import Axe, Shoot
    from support.site import Site

NO_PAGES = {
    "promotion",  # what a form leads to: test_protected_aliases.py
    "lines",  # parts of a build's page
    "steps",
    "referrer",  # a file
    "search",  # what a form leads to: test_search.py
    "models",  # likewise
    "sign_in",  # leads whoever signed in away; see below
    "sign_in_answer",  # to and from the provider: test_provider_sign_in.py
    "sign_in_elsewhere",
    "device",  # what a terminal leads to: likewise
}
PAGES = [kind for kind in kinds() if kind not in NO_PAGES]
NARROW, WIDE = 360, 2560
PAPER = 720
"""Pixels across a sheet of A4 between its margins, as browsers count them."""
MOST_SHIFT = 0.01
"""Of what moves by itself: a tenth of what Chromium still calls good."""
NOWHERE = "/models/demo-vision/no-such-model"
MADE_WITHOUT_ARTIFACTS = "charts/long"
"""The history of test_charts.py, whose points have no artifacts to compare."""


@pytest.fixture(scope="module")
def visits(site: Site) -> list[Visit]:
    """Pages that links lead to, a few of each kind."""
    return list(crawl(site))


@pytest.fixture(scope="module")
def fullest(visits: list[Visit]) -> dict[str, str]:
    """Address of the longest page of each kind."""
    found: dict[str, Visit] = {}
    for visit in visits:
        before = found.get(visit.kind)
        if before is None or len(visit.html) > len(before.html):
            found[visit.kind] = visit
    return {kind: visit.address for kind, visit in found.items()}


@pytest.fixture(scope="module")
def windows(chromium: Browser, site: Site) -> Iterator[list[tuple[Page, Watch]]]:
    """A window, and one that runs no scripts; an admin is signed in on both.

    Most tests have windows of their own: a process of the browser's, which costs more than looking at most pages.
    """
    contexts = [open_context(chromium, site, java_script_enabled=runs) for runs in (True, False)]
    made = [(context.new_page(), Watch(context, site.url)) for context in contexts]
    for page, _ in made:
        sign_in(page, site)
    yield made
    for context in contexts:
        context.close()


@pytest.fixture
def both(windows: list[tuple[Page, Watch]]) -> Iterator[tuple[Page, Page]]:
    """These two, on a desk and light; what their pages may not do fails the test."""
    (page, watch), (plain_page, plain_watch) = windows
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light")
    yield page, plain_page
    complaints = watch.complaints + plain_watch.complaints
    for one in (watch, plain_watch):
        one.forgive()
    assert complaints == []


def test_every_kind_of_page_is_found_by_links_from_the_front_page(fullest: dict[str, str]) -> None:
    assert set(PAGES) - set(fullest) == set()


def test_no_page_links_to_one_that_is_not_there(visits: list[Visit]) -> None:
    dead = [
        f"{visit.status} {visit.address} from {visit.origin}"
        for visit in visits
        if visit.status >= 400 and MADE_WITHOUT_ARTIFACTS not in visit.address
    ]
    assert not dead, "\n".join(dead)


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_is_right_and_whole_without_scripts(
    kind: str, fullest: dict[str, str], both: tuple[Page, Page], axe: Axe, shoot: Shoot
) -> None:
    page, plain_page = both
    for one in both:
        response = one.goto(fullest[kind])
        assert response is not None
        assert response.status == 200
    settle(page)
    assert plain_page.locator("h1").inner_text() == page.locator("h1").inner_text()
    titles = [found.locator("main h2:visible").all_inner_texts() for found in (plain_page, page)]
    assert set(titles[1]) <= set(titles[0])
    assert plain_page.locator("main").inner_text().count("\n") > 1
    look(page, kind, axe, shoot)


@pytest.mark.parametrize("view", ["files", "kernels", "autotune", "benchmark", "trace", "provenance", "raw"])
def test_every_tab_of_an_artifact_is_right(
    view: str, visits: list[Visit], both: tuple[Page, Page], axe: Axe, shoot: Shoot
) -> None:
    tabs = [visit for visit in visits if visit.kind == "artifact" and f"?view={view}" in visit.address]
    page, _ = both
    page.goto(max(tabs, key=lambda visit: len(visit.html)).address)
    assert page.locator(".tabs [aria-current=page]").inner_text().lower() == view
    look(page, f"artifact-{view}", axe, shoot)


def test_the_form_to_sign_in_and_a_page_that_is_not_there_are_right_too(
    page: Page, axe: Axe, shoot: Shoot
) -> None:
    page.goto("/sign-in")
    look(page, "sign_in", axe, shoot)
    response = page.goto(NOWHERE)
    assert response is not None
    assert response.status == 404
    look(page, "not_found", axe, shoot)


def test_whoever_uses_the_keyboard_gets_past_the_top_of_a_page(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to content"
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.id === 'content'")


def test_what_another_host_or_the_page_itself_would_bring_is_stopped_and_noticed(
    page: Page, watch: Watch
) -> None:
    page.goto("/sign-in")
    page.evaluate(
        "() => document.head.append(Object.assign(document.createElement('style'), {textContent: 'p {}'}))"
    )
    page.evaluate("() => new Image().src = 'http://192.0.2.1/pixel'")
    settle(page)
    assert "Content Security Policy" in "\n".join(watch.complaints)
    watch.forgive()


def look(page: Page, name: str, axe: Axe, shoot: Shoot) -> None:
    """Judges what every page owes its readers, and takes pictures."""
    settle(page)
    moved = shifts(page)
    assert sum(amount for amount, _ in moved) <= MOST_SHIFT, moved
    assert page.locator("h1").count() == 1
    assert page.title().endswith(" · pt2hub")
    shoot(page, name)
    for width in (NARROW, WIDE):
        found = wider(page, width)
        assert not found, "\n".join(found)
    page.emulate_media(media="print")
    found = wider(page, PAPER)
    page.emulate_media(media="screen")
    assert not found, "\n".join(found)
    axe(page)
    page.emulate_media(color_scheme="dark")
    axe(page, "color-contrast")
