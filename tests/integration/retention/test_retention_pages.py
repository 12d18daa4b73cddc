"""Retention policies on pages: which one holds, what it keeps, and what it would delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.tokens import Actor
from support.pages import Page
from support.promoted import ADMIN, MODEL, move, published

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from support.registry import Registry

TEAM = MODEL.partition("/")[0]
NASTY = Actor("<b>root</b>", admin=True)


def read(web: FlaskClient, path: str, status: int = 200) -> Page:
    answer = web.get(path)
    assert answer.status_code == status, answer.get_data(as_text=True)[:2000]
    return Page(answer.get_data(as_text=True))


def preview_links(page: Page) -> list[str]:
    return [link for link in page.links if link.startswith("/retention")]


def test_a_models_page_says_whose_policy_holds_and_what_it_keeps(
    web: FlaskClient, registry: Registry
) -> None:
    published(registry)
    retention, model, team = registry.services.retention, f"/models/{MODEL}", f"/models/{TEAM}"
    for page in (model, team):
        assert "Retention: everything is kept (no policy is set)." in read(web, page).text
    retention.put(TEAM, last=3, by=NASTY)
    held = "Retention: the last 3 versions are kept, and what an alias pins"
    assert f"{held} (policy of {TEAM}), set by <b>root</b>" in read(web, model).text
    assert f"{held}, set by <b>root</b>" in read(web, team).text
    retention.put(MODEL, last=10, pulled_within_days=90, by=ADMIN)
    shown = read(web, model)
    assert "the last 10 versions and those pulled or published within 90 days are kept" in shown.text
    assert "set by root" in shown.text
    assert preview_links(shown) == [], "it would be refused"


def test_admins_are_led_to_what_it_would_delete_and_nothing_is_deleted(
    signed_in: FlaskClient, registry: Registry
) -> None:
    for _ in range(4):
        published(registry)
    move(registry, 1, None)
    registry.services.retention.put(MODEL, last=2, by=NASTY)
    for scope in (MODEL, TEAM):
        (link,) = preview_links(read(signed_in, f"/models/{scope}"))
        shown = read(signed_in, link)
        assert "1 version goes at the next run, which frees" in shown.text
        assert f"/models/{MODEL}/versions/2" in shown.links
        assert f"/models/{MODEL}/versions/3" not in shown.links
        assert f"{MODEL}@1: prod of {MODEL} pins it" in shown.text
        assert "the last 2 versions are kept, and what an alias pins, set by <b>root</b>" in shown.text
    assert registry.services.catalog.model(MODEL).versions == 4
    registry.services.retention.put(MODEL, by=ADMIN)
    assert "Nothing would be deleted now." in read(signed_in, f"/retention?scope={MODEL}").text


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("", 422, "scope is required"),
        ("?scope=%3Cb%3E", 422, "<b>"),
        (f"?scope={TEAM}/none", 404, f"Model {TEAM}/none not found"),
    ],
)
def test_a_wrong_scope_is_explained(
    signed_in: FlaskClient, registry: Registry, query: str, status: int, said: str
) -> None:
    published(registry)
    assert said in read(signed_in, f"/retention{query}", status).text
