"""Signing in and publishing as people do it: typing, reading what would happen, and losing nothing."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from pt2hub.wire.documents import write_document
from support.browser import FLAGS, PROGRAMS, open_context, open_menu, sign_in
from support.registry import V4, a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from support.browser import Axe, Shoot, Watch
    from support.site import Site


def spec(name: str) -> str:
    return write_document(a_spec(model=f"publishing/{name}", targets=[V4]))


@pytest.fixture
def keeping(chromium: Browser, site: Site) -> Iterator[Page]:
    """A page of a browser that keeps pages whole for Back, as people's do; Playwright's are told not to."""
    kind = chromium.browser_type
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    kept = ["--disable-back-forward-cache"]
    browser = kind.launch(executable_path=found, args=FLAGS, ignore_default_args=kept)
    yield open_context(browser, site).new_page()
    browser.close()


def test_a_spec_is_checked_as_it_is_typed_and_published(
    site: Site, page: Page, axe: Axe, shoot: Shoot
) -> None:
    page.goto("/publish")
    page.get_by_role("link", name="Sign in to publish").click()
    page.locator("[name=token]").fill(site.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{site.url}/publish")

    text = spec("typed")
    area, outcome = page.locator("#spec"), page.locator("#outcome")
    area.fill(text.replace("shape:", "shap:"))
    expect(outcome).to_contain_text("unknown field")
    axe(page)
    shoot(page, "publish-wrong")
    outcome.get_by_role("button", name=re.compile("line")).last.click()
    chosen = page.evaluate("() => getSelection().toString()")
    assert chosen.strip().startswith("shap:")

    area.fill(text)
    expect(outcome).to_contain_text("It creates the model and its first version, publishing/typed@1")
    axe(page)
    shoot(page, "publish-right")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page).to_have_url(re.compile("/models/publishing/typed/versions/1"))
    assert site.container.publish.version("publishing/typed", 1).builds[0].target == V4


def test_a_session_that_ends_while_somebody_types_loses_nothing(
    site: Site, page: Page, watch: Watch, axe: Axe, shoot: Shoot
) -> None:
    sign_in(page, site)
    page.goto("/publish")
    page.context.clear_cookies()
    page.locator("#spec").fill(spec("ended"))
    expect(page.locator("#outcome")).to_contain_text("Your session has ended")
    watch.forgive()  # the refused check
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to continue")
    axe(page)
    shoot(page, "session-ended")
    page.get_by_label("Token").fill(site.token)
    page.get_by_role("button", name="Sign in and continue").click()
    expect(page).to_have_url(re.compile("/models/publishing/ended/versions/1"))


def test_publishing_and_signing_out_need_no_scripts(site: Site, plain_page: Page) -> None:
    sign_in(plain_page, site)
    plain_page.goto("/publish?from=example")
    plain_page.locator("#spec").fill(spec("plain"))
    plain_page.get_by_role("button", name="Check only").click()
    expect(plain_page.locator("#outcome")).to_contain_text("The spec is valid")
    assert plain_page.locator("#spec").input_value() == spec("plain")
    plain_page.get_by_role("button", name="Publish", exact=True).click()
    expect(plain_page).to_have_url(re.compile("/models/publishing/plain/versions/1"))
    open_menu(plain_page)
    plain_page.get_by_role("button", name="Sign out").click()
    expect(plain_page.get_by_role("status")).to_have_text("You are signed out.")
    expect(plain_page.get_by_role("link", name="Sign in")).to_be_visible()


def test_nothing_of_who_signed_out_comes_back(site: Site, keeping: Page) -> None:
    sign_in(keeping, site)
    keeping.goto("/publish")
    keeping.locator("#spec").fill("model: secret/plans")
    keeping.goto("/targets")
    open_menu(keeping)
    keeping.get_by_role("button", name="Sign out").click()
    expect(keeping).to_have_url(re.compile("/sign-in"))
    for path in ("targets", "publish"):
        keeping.evaluate("() => void setTimeout(() => history.back(), 0)")  # goto and go_back wait for a load
        expect(keeping).to_have_url(f"{site.url}/{path}")
        expect(keeping.get_by_role("link", name="Sign in", exact=True)).to_be_visible()
        expect(keeping.locator("#spec")).to_have_count(0)
