"""The pictures of the README, kept in build/screenshots as all others.

`PT2HUB_UPDATE_SCREENSHOTS=1` writes them into docs/images too; look at them before you keep them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.browser import ROOT, SCREENSHOTS, settle

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

    from support.site import Site

IMAGES = ROOT / "docs" / "images"
SIZE: ViewportSize = {"width": 1200, "height": 820}
MOST_BYTES = 250_000
SIZES = slice(16, 24)
"""Where a PNG file has its width and height."""
GPUS = "&".join(f"target=torch2.13-cu130-{arch}" for arch in ("sm80", "sm89", "sm90"))
PICTURES = {
    "front": ("/", "Models"),
    "performance": (
        f"/models/demo-vision/resnet50-classifier/performance?metric=latency_p50&from=8&y=change&{GPUS}",
        "Performance of demo-vision/resnet50-classifier",
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_readme_can_be_made_and_is_small(name: str, page: Page, site: Site) -> None:
    address, heading = PICTURES[name]
    site.registry.worker("cpu-xeon-3-214")  # a server that builds
    page.set_viewport_size(SIZE)
    page.goto(address)
    assert page.locator("h1").inner_text() == heading
    if page.locator("[data-chart]").count():
        page.wait_for_selector("[data-drawn-ms]")
    settle(page)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    made = page.screenshot(path=SCREENSHOTS / f"readme-{name}.png")
    assert len(made) < MOST_BYTES
    kept = IMAGES / f"{name}.png"
    if os.environ.get("PT2HUB_UPDATE_SCREENSHOTS"):
        IMAGES.mkdir(exist_ok=True)
        kept.write_bytes(made)
    assert kept.read_bytes()[SIZES] == made[SIZES]
