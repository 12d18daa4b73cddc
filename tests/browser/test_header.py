"""The top of every page: one row, its menu, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from support.browser import open_menu, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from support.site import Site

ROW = 64
"""Pixels: more than one row of the header would be higher."""
PAGE_WITH_ROWS = "/components"


@pytest.mark.parametrize("width", [360, 390, 961, 1280, 2560])
def test_the_header_is_one_row_also_when_somebody_is_signed_in(page: Page, site: Site, width: int) -> None:
    sign_in(page, site)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto("/")
    box = page.locator("header.top").bounding_box()
    assert box is not None
    assert box["height"] <= ROW


@pytest.mark.parametrize("width", [390, 1280])
def test_every_item_of_the_navigation_can_be_reached(page: Page, site: Site, width: int) -> None:
    sign_in(page, site)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto("/")
    open_menu(page)
    for name in ("Models", "Versions", "Builds", "Changes", "Compare", "Targets", "Publish", "Audit log"):
        expect(page.locator("header").get_by_role("link", name=name, exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()


def test_a_menu_closes_when_something_else_is_used(page: Page) -> None:
    page.goto("/components")
    open_menu(page)
    expect(page.get_by_role("link", name="Usage")).to_be_visible()
    page.locator("h1").click()
    expect(page.get_by_role("link", name="Usage")).to_be_hidden()


def test_keys_go_through_a_list_and_show_themselves(page: Page) -> None:
    page.goto(PAGE_WITH_ROWS)
    rows = page.locator("[data-rows] > *")
    page.keyboard.press("j")
    expect(rows.nth(0).locator("a").first).to_be_focused()
    page.keyboard.press("j")
    expect(rows.nth(1).locator("a").first).to_be_focused()
    page.keyboard.press("k")
    expect(rows.nth(0).locator("a").first).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Next row of a list")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_keys_are_letters_where_somebody_types(page: Page) -> None:
    page.goto(PAGE_WITH_ROWS)
    page.keyboard.press("/")
    page.keyboard.type("jk?")
    expect(page.get_by_role("combobox", name="Search", exact=True)).to_have_value("jk?")
    expect(page.get_by_role("dialog")).to_have_count(0)
