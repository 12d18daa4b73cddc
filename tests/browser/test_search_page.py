"""Search as you type, in the top of every page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from pt2hub.domain.tokens import Actor
from support.registry import V4

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from support.browser import Axe, Shoot, Watch
    from support.site import Site


def found(page: Page) -> Locator:
    return page.locator("#found").get_by_role("option")


def test_models_are_found_while_their_names_are_typed_and_opened_by_the_keyboard(
    page: Page, axe: Axe
) -> None:
    page.goto("/changes")
    page.keyboard.press("/")
    field = page.get_by_role("combobox", name="Search", exact=True)
    expect(field).to_be_focused()
    page.keyboard.type("RESNET")
    expect(found(page).first).to_contain_text("resnet")
    expect(field).to_have_attribute("aria-expanded", "true")
    name = found(page).first.locator("span").inner_text()
    axe(page)
    page.keyboard.press("ArrowDown")
    expect(found(page).first).to_have_attribute("aria-selected", "true")
    expect(field).to_have_attribute("aria-activedescendant", "found-0")
    page.keyboard.press("ArrowUp")
    expect(field).not_to_have_attribute("aria-activedescendant", re.compile("."))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/models/{name}")


def test_a_click_opens_a_model_and_escape_closes_the_list_and_keeps_what_was_typed(page: Page) -> None:
    page.goto("/targets")
    field = page.get_by_role("combobox", name="Search", exact=True)
    field.fill("demo-")
    expect(found(page)).to_have_count(6)
    page.keyboard.press("Escape")
    expect(found(page)).to_have_count(0)
    expect(field).to_have_value("demo-")
    page.keyboard.press("ArrowDown")
    expect(found(page)).to_have_count(6)
    name = found(page).nth(3).locator("span").inner_text()
    found(page).nth(3).click()
    page.wait_for_url(f"**/models/{name}")


def test_enter_without_a_choice_leads_to_all_that_were_found(page: Page) -> None:
    page.goto("/changes")
    page.get_by_role("combobox", name="Search", exact=True).fill("resnet")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=resnet")
    expect(page.get_by_role("heading", level=1)).to_have_text("Search for “resnet”")
    expect(page.get_by_role("searchbox").or_(page.get_by_role("combobox"))).to_have_value("resnet")


def test_what_nobody_has_is_said_and_a_server_that_is_away_breaks_nothing(page: Page, watch: Watch) -> None:
    page.goto("/")
    field = page.get_by_role("combobox", name="Search", exact=True)
    field.fill("<b>no such model</b>")
    expect(page.get_by_role("status").filter(has_text="Nothing found")).to_be_attached()
    expect(found(page)).to_have_count(0)
    page.context.set_offline(True)
    field.fill("resnet")
    page.wait_for_timeout(400)
    expect(found(page)).to_have_count(0)
    page.context.set_offline(False)
    field.fill("resne")
    expect(found(page).first).to_contain_text("resne")
    watch.forgive()  # the browser itself says that it was offline


def test_search_works_without_scripts(plain_page: Page) -> None:
    plain_page.goto("/targets")
    plain_page.get_by_label("Search", exact=True).fill("resnet")
    plain_page.keyboard.press("Enter")
    plain_page.wait_for_url("**/search?q=resnet")
    assert plain_page.locator("main [data-rows] a").count() > 0


def test_builds_and_targets_are_found_too_and_the_page_of_the_search_is_right(
    site: Site, page: Page, axe: Axe, shoot: Shoot
) -> None:
    (build,) = site.registry.submit(model="browser/search", targets=[V4]).builds
    site.container.builds.cancel(build.id, by=Actor("mary"))
    page.goto("/")
    field = page.get_by_role("combobox", name="Search", exact=True)
    field.fill(build.id[:8])
    expect(found(page).first).to_contain_text("browser/search@1")
    page.keyboard.press("Enter")  # one alone has this beginning
    page.wait_for_url(f"**/builds/{build.id}")
    page.goto("/search?q=demo")
    axe(page)
    shoot(page, "search")
    page.keyboard.press("j")
    expect(page.locator("main [data-rows] a").first).to_be_focused()
