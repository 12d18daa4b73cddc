"""Versions and aliases as people use them: moved by forms, refused by a policy and forced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.tokens import Actor
from support.browser import sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from support.browser import Axe, Shoot
    from support.site import Site

MODEL = "browser/aliases"
DEMO = "/models/demo-vision/resnet50-classifier"


def two_versions(site: Site) -> None:
    """A model with two versions whose figures no check can tell apart."""
    for number in (1, 2):
        view = site.registry.submit(model=MODEL, checks={"tolerance": 0.01 * number})
        site.registry.published(view, code=b"aliases %d" % number, key=f"aliases {number}")


def move(page: Page, number: int, reason: str) -> None:
    page.locator("#move-number").fill(str(number))
    page.locator("#move-reason").fill(reason)


def test_an_alias_is_made_refused_by_the_policy_and_forced(
    page: Page, site: Site, axe: Axe, shoot: Shoot
) -> None:
    two_versions(site)
    check = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
    site.container.policies.put(MODEL, {"checks": [check]}, revision=0, by=Actor("ada", admin=True))
    sign_in(page, site)
    page.goto(f"/models/{MODEL}")
    page.get_by_text("Set an alias").click()
    page.locator("#move-alias").fill("prod")
    move(page, 1, "first release")
    page.get_by_role("button", name="Set alias").click()
    page.wait_for_url(f"**/models/{MODEL}/aliases/prod?done=created")
    page.get_by_text("Move prod", exact=True).click()
    move(page, 2, "canary <b>passed</b>")
    page.get_by_role("button", name="Move alias").click()
    page.get_by_role("heading", name="Policy results").wait_for()
    assert page.locator("#move-reason").input_value() == "canary <b>passed</b>"
    axe(page)
    shoot(page, "alias-refused")
    page.get_by_label("Force the move").check()
    page.get_by_role("button", name="Move alias", exact=True).click()
    page.get_by_text("although the policy refused it").wait_for()
    page.locator("summary").get_by_text("forced past").click()
    assert page.locator("td.reason p").first.inner_text() == "canary <b>passed</b>"
    assert site.container.aliases.alias(MODEL, "prod").number == 2
    axe(page)


def test_checks_are_shown_before_a_move_and_a_yank_hides_a_version(
    page: Page, site: Site, axe: Axe, shoot: Shoot
) -> None:
    model = "browser/promotion"
    for number in (1, 2):
        view = site.registry.submit(model=model, checks={"tolerance": 0.01 * number})
        site.registry.published(view, code=b"promotion %d" % number, key=f"promotion {number}")
    document = {"protected": {"prod": {"ready": True, "verified": True}}}
    site.container.policies.put(model, document, revision=0, by=Actor("ada", admin=True))
    sign_in(page, site)
    page.goto(f"/models/{model}")
    axe(page)
    page.get_by_text("Set an alias").click()
    page.locator("#move-alias").fill("prod")
    move(page, 1, "as <b>typed</b>")
    page.get_by_role("button", name="Show checks").click()
    page.get_by_role("region", name="Promotion checks").get_by_text("compared nothing").wait_for()
    assert page.locator("#move-reason").input_value() == "as <b>typed</b>"
    assert site.container.aliases.aliases(model).aliases == ()
    axe(page)
    shoot(page, "promotion-checks")
    page.get_by_label("Force the move").check()
    page.get_by_role("button", name="Set alias").click()
    page.wait_for_url(f"**/models/{model}/aliases/prod?done=forced")
    page.goto(f"/models/{model}/versions/2")
    page.get_by_text("Yank version 2").first.click()
    page.locator("#yank-reason").fill("wrong labels")
    page.get_by_role("button", name="Yank version 2").click()
    page.get_by_role("status").get_by_text("Version yanked.").wait_for()
    axe(page)
    shoot(page, "version-yanked")
    page.get_by_text("End the yank of version 2").click()
    page.locator("#unyank-reason").fill("the labels were right")
    page.get_by_role("button", name="End the yank").click()
    page.get_by_text("Yank ended").wait_for()


def test_a_link_to_a_target_opens_what_is_said_of_it(page: Page) -> None:
    page.goto(DEMO)
    page.locator(".matrix a:has(.dot)").first.click()
    page.wait_for_url("**/versions/*#torch*")
    page.locator(".about[open] .within:target").get_by_text("Provenance").wait_for()
