"""Lists of builds in a real browser: they go on by themselves, and leave their reader where he is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildFilter
from pt2hub.domain.tokens import Actor
from support.browser import shifts
from support.registry import V3, V4

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from support.site import Site

PAUSE, LONG_PAUSE = 5_000, 15_000
"""Milliseconds between two looks while a build is open, and otherwise, as of islands/lists.ts."""
FOCUS = "() => document.activeElement.getAttribute('href')"


def go_on(page: Page, pause: int = PAUSE) -> None:
    """Lets the time pass after which the list is looked at again."""
    with page.expect_response(lambda response: "part=" in response.url):
        page.clock.run_for(pause)


def rows(page: Page) -> list[str]:
    """The builds in the order shown."""
    return page.locator("[data-part=builds] [data-row]").evaluate_all(
        "all => all.map(row => row.dataset.row)"
    )


def test_a_list_goes_on_and_keeps_focus_and_places_until_its_reader_leaves_it(site: Site, page: Page) -> None:
    model, builds = "browser/lists", site.container.builds
    first, second = site.registry.submit(model=model, targets=[V4, V3]).builds
    page.clock.install()
    page.goto(f"/builds?model={model}")
    before = rows(page)
    assert {*before} == {first.id, second.id}
    link = page.locator(f"[data-row='{first.id}'] a").first
    link.focus()
    builds.cancel(first.id, by=Actor("mary"))
    (third,) = site.registry.submit(model=model, targets=[V4], checks={"tolerance": 0.1}).builds
    go_on(page)
    page.locator(f"[data-row='{first.id}'] .state-cancelled").wait_for()
    assert rows(page) == before, "who is in the list finds everything where it was"
    assert page.evaluate(FOCUS) == f"/builds/{first.id}"
    page.locator("#model").focus()
    go_on(page)
    page.locator(f"[data-row='{third.id}']").wait_for()
    assert rows(page) == [third.id, *before]
    for build in (second, third):
        builds.cancel(build.id, by=Actor("mary"))
    go_on(page)
    page.locator("[data-part=builds][data-open=false]").wait_for()
    assert page.locator(".state-cancelled").count() == 3
    assert shifts(page) == []
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(2 * PAUSE)
    assert asked == [], "nothing is left that changes soon"
    site.registry.submit(model=model, targets=[V4], checks={"tolerance": 0.2})
    go_on(page, LONG_PAUSE - 2 * PAUSE)
    page.locator("[data-part=builds][data-open=true]").wait_for()
    assert page.locator("[data-part=builds] [data-row]").count() == 4


def test_how_long_ago_something_was_goes_on_while_somebody_looks(site: Site, page: Page) -> None:
    site.registry.submit(model="browser/times", targets=[V4])
    page.clock.install()
    page.goto("/models/browser/times/versions/1")
    published = page.locator("dd > time[data-relative]").first
    assert "h" not in published.inner_text()
    page.clock.fast_forward("02:00:00")
    assert published.inner_text() == "2 h ago"
    assert shifts(page) == []


def test_the_front_page_tells_of_builds_that_begin_and_end_while_it_is_open(site: Site, page: Page) -> None:
    model, builds = "browser/front-lists", site.container.builds
    (first,) = site.registry.submit(model=model, targets=[V4]).builds
    page.clock.install()
    page.goto("/?sort=recent")
    row = page.locator(f"[data-row='{model}']")
    row.locator(".dot-queued").wait_for()
    top = page.evaluate("() => { scrollTo(0, 100); return scrollY; }")
    (second,) = site.registry.submit(model=model, targets=[V4], checks={"tolerance": 0.1}).builds
    builds.cancel(second.id, by=Actor("mary"))
    go_on(page)
    row.locator(".dot-cancelled").wait_for()
    waiting = site.container.overview.totals().queued
    page.locator("[data-part=totals]", has_text=f"{waiting} queued").wait_for()
    assert page.evaluate("() => scrollY") == top
    builds.cancel(first.id, by=Actor("mary"))
    assert {build.state for build in site.container.catalog.builds(BuildFilter(model=model)).builds} == {
        "cancelled"
    }


def test_the_front_page_keeps_its_places_while_its_reader_uses_it(site: Site, page: Page) -> None:
    model, builds = "browser/front-places", site.container.builds
    (first,) = site.registry.submit(model=model, targets=[V4]).builds
    page.clock.install()
    page.goto("/")
    before = page.locator("[data-part=models] [data-row]").evaluate_all(
        "all => all.map(row => row.dataset.row)"
    )
    page.locator("[data-part=models] [data-row] a").first.focus()
    builds.cancel(first.id, by=Actor("mary"))
    site.registry.submit(model="browser/front-places-2", targets=[V4])
    go_on(page)
    after = page.locator("[data-part=models] [data-row]").evaluate_all(
        "all => all.map(row => row.dataset.row)"
    )
    assert before == after
    assert shifts(page) == []


def test_the_columns_of_models_stay_whatever_their_rows_say(page: Page) -> None:
    """Rows arrive in parts on a busy machine, and change while one looks."""
    heads = (
        "() => [...document.querySelectorAll('.models thead th')].map(head => head.getBoundingClientRect().x)"
    )
    page.goto("/")
    before = page.evaluate(heads)
    page.evaluate("() => document.querySelectorAll('.models tr:has(.trend)').forEach(row => row.remove())")
    assert page.locator(".models tbody tr").count()
    assert len(before) == 7
    assert page.evaluate(heads) == before


def test_the_columns_of_targets_stay_whatever_their_rows_say(page: Page) -> None:
    heads = "() => [...document.querySelectorAll('.all-targets thead th')].map(head => head.getBoundingClientRect().x)"
    page.goto("/targets")
    before = page.evaluate(heads)
    page.evaluate("() => document.querySelectorAll('.all-targets tbody tr').forEach(row => row.remove())")
    assert len(before) == 7
    assert page.evaluate(heads) == before
