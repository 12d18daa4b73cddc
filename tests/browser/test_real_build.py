"""A model from its spec to an alias in production, in a real browser beside a real worker that compiles it."""

from __future__ import annotations

import io
import re
import signal
import zipfile
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from pt2hub.wire.documents import write_document
from support.browser import sign_in
from support.workbench import FACTORIES, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from support.browser import Axe, Shoot
    from support.site import Site

MODEL = "browser-real/mlp"
MS = 300_000
"""Milliseconds for a build beside other tests; alone it takes half a minute."""


@pytest.fixture(scope="module")
def target(site: Site) -> Iterator[str]:
    """What a worker builds for, beside those that other tests only tell of."""
    worker = site.works.start()
    yield next(line["target"] for line in worker.lines if line["event"] == "worker ready")
    worker.signal(signal.SIGTERM)
    worker.wait()


def spec(seed: int, target: str) -> str:
    source = {"factory": f"{FACTORIES}:Mlp", "kwargs": {}, "seed": seed}
    return write_document(tiny_spec(source=source, targets=[target]) | {"model": MODEL})


def publish(page: Page, site: Site, seed: int, target: str) -> None:
    """Publishes a version by the form, and goes on to its only build."""
    sign_in(page, site)
    page.goto("/publish")
    page.locator("#spec").fill(spec(seed, target))
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page).to_have_url(re.compile(f"/models/{MODEL}/versions/"))
    page.get_by_role("link", name=re.compile("^The build for torch")).click()
    expect(page).to_have_url(re.compile("/builds/"))


@pytest.mark.compiles
def test_a_model_is_published_watched_looked_at_and_put_into_production(
    site: Site, target: str, page: Page, axe: Axe, shoot: Shoot
) -> None:
    publish(page, site, 1, target)
    page.evaluate("() => { window.loaded = 'once'; }")
    stages, lines = page.locator("table.steps"), page.locator(".lines li")
    expect(stages.get_by_role("img", name="fetch: done")).to_be_visible(timeout=MS)
    expect(lines.first).to_be_visible(timeout=MS)
    shoot(page, "real-build-running")
    expect(page.locator(".answer")).to_contain_text("Succeeded in", timeout=MS)
    expect(stages.get_by_role("img", name="publish: done")).to_be_visible()
    assert lines.count() > 5
    assert page.evaluate("() => window.loaded") == "once"
    shoot(page, "real-build")

    page.get_by_role("link", name="Open the artifact").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"{MODEL}@1")
    axe(page)
    shoot(page, "real-artifact")
    digest = page.url.rpartition("/")[2]
    single = page.request.get(page.get_by_role("link", name="Download model.pt2").get_attribute("href") or "")
    assert any(name.endswith(".so") for name in zipfile.ZipFile(io.BytesIO(single.body())).namelist())
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Kernels").click()
    page.get_by_role("link", name="Generated sources").click()
    page.get_by_role("navigation", name="Files").get_by_role("link", name=re.compile("cpp")).first.click()
    expect(page.locator(".source .line").first).to_be_visible()
    axe(page)
    shoot(page, "real-sources")

    page.goto(f"/models/{MODEL}/versions/1")
    page.locator("summary", has_text="Set an alias on version 1").click()
    page.locator("#move-alias").fill("prod")
    page.locator("#move-reason").fill("it is <b>quick</b>")
    page.get_by_role("button", name="Set alias").click()
    expect(page.locator(".done")).to_be_visible()
    assert site.container.publish.version(MODEL, 1).builds[0].artifact == digest
    assert site.container.catalog.model(MODEL).aliases == {"prod": 1}
    page.goto(f"/models/{MODEL}/aliases/prod")
    expect(page.locator("main")).to_contain_text("it is <b>quick</b>")


@pytest.mark.compiles
def test_a_build_that_a_worker_is_doing_is_cancelled_with_two_clicks(
    site: Site, target: str, page: Page
) -> None:
    publish(page, site, 2, target)
    expect(page.locator("[data-live=state][data-state=running]")).to_be_attached(timeout=MS)
    page.locator("summary", has_text="Cancel").click()
    page.get_by_role("button", name="Cancel build").click()
    expect(page.locator(".answer")).to_contain_text("Cancelled")
    assert site.container.builds.view(page.url.rpartition("/")[2].partition("?")[0]).state == "cancelled"
