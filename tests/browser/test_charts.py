"""Charts in a real browser: what is drawn, what points say, how two of them are chosen, and how long it takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from support.figures import latency, measured, versions

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from support.browser import Axe, Shoot
    from support.site import Site

MODEL = "charts/long"
COUNT = 10_000
WORSE_FROM = 9_980
DEMO = "/models/demo-ranking/feed-ranker-dcn/performance?metric=latency_p50"
PAGE = f"/models/{MODEL}/performance?metric=latency_p50&batch=8"
WRITTEN = """
    window.written = [];
    const fillText = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        window.written.push(text);
        return fillText.call(this, text, ...rest);
    };
"""
"""Keeps what is written on canvases: their axes."""
COLOURS = """() => {
    const canvas = document.querySelector(".plot canvas");
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let at = 0; at < pixels.length; at += 4) {
        if (pixels[at + 3] > 200) colours.add((pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2]);
    }
    return [...colours].map(colour => colour.toString(16).padStart(6, "0"));
}"""
LINE, BAD = "0072b2", "b3261e"
"""`--line-1` and `--bad` of `pages.css`."""


@pytest.fixture(scope="session")
def charted(site: Site) -> str:
    """A model with ten thousand versions, the last twenty of which are slower."""
    (one,) = versions(site.registry, 1, model=MODEL)
    measured(site.registry, one, latency(10, batch=8))
    of_series = "FROM series JOIN models ON models.id = model_id WHERE name = %s AND batch = 8"
    site.registry.sql(
        "INSERT INTO series_points SELECT series.id, number, %s, "
        "(10 + number %% 7 * 0.05) * CASE WHEN number >= %s THEN 1.3 ELSE 1 END, 9.5, 13.6, 3, "
        "now() - (%s - number) * interval '1 hour' "
        f"FROM generate_series(2, %s::int) AS number, series {of_series.removeprefix('FROM series')}",
        one,
        WORSE_FROM,
        COUNT,
        COUNT,
        MODEL,
    )
    site.registry.sql(
        "INSERT INTO performance_events (series_id, model_id, kind, number, before, verdict, ratio, method) "
        f"SELECT series.id, model_id, 'change_point', %s, %s, 'worse', 1.3, 'series' {of_series}",
        WORSE_FROM,
        WORSE_FROM - 1,
        MODEL,
    )
    return PAGE


def open_chart(page: Page, address: str) -> dict[str, float]:
    """Opens a page, and waits for its first chart: where its plotting area is."""
    page.goto(address)
    page.wait_for_selector("[data-drawn-ms]")
    box: Any = page.locator(".u-over").first.bounding_box()
    return {name: float(value) for name, value in box.items()}


def at(box: dict[str, float], x: float, y: float) -> tuple[float, float]:
    """A place in a box, by its shares of width and height."""
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def chosen(page: Page) -> list[str]:
    return said(page).get("point", [])


def said(page: Page) -> dict[str, list[str]]:
    """What the address says now; Playwright learns of what scripts write into it a moment later."""
    return parse_qs(page.evaluate("() => location.search.slice(1)"))


def test_a_chart_shows_its_line_its_marks_and_right_axes(page: Page, charted: str, shoot: Shoot) -> None:
    page.add_init_script(WRITTEN)
    open_chart(page, f"{charted}&limit=50")
    drawn = page.evaluate(COLOURS)
    assert {LINE, BAD} <= set(drawn)
    written = page.evaluate("() => window.written")
    figures = [float(text.removesuffix(" ms")) for text in written if text.endswith(" ms")]
    assert min(figures) <= 10.5
    assert max(figures) >= 13
    assert all(9 < figure < 15 for figure in figures)
    numbers = {int(text) for text in written if re.fullmatch(r"\d+", text)}
    assert {9960, 9980, 10000} <= numbers
    assert numbers <= set(range(COUNT - 50, COUNT + 2))
    shoot(page, "performance-chart")


def test_ten_thousand_points_are_drawn_in_a_tenth_of_a_second(page: Page, charted: str) -> None:
    taken: list[float] = []
    while len(taken) < 10 and min(taken, default=100) >= 100:  # others may have the cores
        open_chart(page, f"{charted}&limit={COUNT}")
        taken.append(float(page.locator("[data-drawn-ms]").first.get_attribute("data-drawn-ms") or "inf"))
    assert min(taken) < 100, taken


def test_the_pointer_shows_a_point_and_a_drag_zooms(page: Page, charted: str) -> None:
    box = open_chart(page, f"{charted}&limit=50")
    page.mouse.move(*at(box, 0.95, 0.18))
    tip = page.locator(".tip").first
    tip.wait_for(state="visible")
    assert re.search(r"1[23]\.?\d* ms\s+Version \d{4,5}", tip.inner_text()), tip.inner_text()
    page.mouse.move(*at(box, 0.2, 0.5))
    page.mouse.down()
    page.mouse.move(*at(box, 0.5, 0.5), steps=4)
    page.mouse.up()
    page.wait_for_function("() => location.search.includes('zoom=')")
    low, high = map(float, said(page)["zoom"][0].split("~"))
    assert COUNT - 45 < low < high < COUNT - 20
    page.reload()
    page.get_by_role("button", name="See all").click()
    page.wait_for_function("() => !location.search.includes('zoom=')")


def test_two_points_are_chosen_with_the_pointer_and_kept_in_the_address(
    page: Page, charted: str, axe: Axe
) -> None:
    box = open_chart(page, f"{charted}&limit=50")
    page.mouse.click(*at(box, 0.1, 0.85))
    page.mouse.click(*at(box, 0.98, 0.2))
    one, other = (int(text.partition("~")[0]) for text in chosen(page))
    assert COUNT - 50 < one < WORSE_FROM <= other
    axe(page)
    page.reload()
    compare = page.get_by_role("link", name="Compare", exact=True).last
    assert f"%40{one}&" in (compare.get_attribute("href") or "")


def test_what_is_chosen_is_shown_at_once_and_back_takes_it_back(page: Page) -> None:
    open_chart(page, DEMO)
    names = page.locator(".standings .target")
    every = names.all_inner_texts()
    loaded = page.evaluate("() => performance.timeOrigin")
    page.get_by_role("checkbox", name=every[0], exact=True).uncheck()
    page.wait_for_function(
        "many => document.querySelectorAll('.standings .target').length < many", arg=len(every)
    )
    assert names.all_inner_texts() == said(page)["target"] == every[1:]
    page.locator("select[name=y]").select_option("zero")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.drawn .up')].some(tick => tick.textContent === '0')"
    )
    assert said(page)["y"] == ["zero"]
    assert page.get_by_role("status").filter(has_text="1 chart updated").count() == 1
    assert page.get_by_role("button", name="Show").count() == 0
    page.go_back()
    page.go_back()
    page.wait_for_function(
        "many => document.querySelectorAll('.standings .target').length === many", arg=len(every)
    )
    assert said(page) == {"metric": ["latency_p50"]}
    assert page.get_by_role("checkbox", name=every[0], exact=True).is_checked()
    assert page.locator("select[name=y]").input_value() == "value"
    assert page.evaluate("() => performance.timeOrigin") == loaded, "without a reload"


def test_two_points_of_a_chart_are_chosen_with_the_keyboard(page: Page, charted: str, axe: Axe) -> None:
    open_chart(page, f"{charted}&limit=50")
    page.get_by_role("application", name="latency_p50 batch 8").focus()
    tip = page.locator(".tip").first
    for key in ("ArrowRight", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    assert f"Version {COUNT - 1}" in tip.inner_text()
    for key in ("Home", "Enter"):
        page.keyboard.press(key)
    assert [text.partition("~")[0] for text in chosen(page)] == [str(COUNT - 1), str(COUNT - 49)]
    axe(page)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == f"Version {COUNT - 49}"


def test_two_rows_are_chosen_with_the_keyboard(page: Page, charted: str) -> None:
    open_chart(page, f"{charted}&limit=50")
    for number in (COUNT, COUNT - 3):
        page.get_by_role("checkbox", name=f"Choose version {number} ").focus()
        page.keyboard.press("Space")
    assert [text.partition("~")[0] for text in chosen(page)] == [str(COUNT), str(COUNT - 3)]
    bar = page.get_by_role("status").filter(has_text="Chosen")
    assert f"version {COUNT - 3} on" in bar.inner_text()
    page.get_by_role("button", name="Clear").focus()
    page.keyboard.press("Enter")
    assert chosen(page) == []


def test_without_scripts_the_server_draws_and_a_form_compares(plain_page: Page, charted: str) -> None:
    plain_page.goto(f"{charted}&limit=50")
    drawing = plain_page.get_by_role("img", name="latency_p50 batch 8 in ms, lower is better")
    assert drawing.locator("polyline").count() == 1
    assert "since version 9980" in (drawing.get_attribute("aria-label") or "")
    assert plain_page.locator(".u-over").count() == 0
    for number in (COUNT, COUNT - 1):
        plain_page.get_by_role("checkbox", name=f"Choose version {number} ").check()
    plain_page.get_by_role("button", name="Compare two chosen").click()
    assert f"before={MODEL}@{COUNT - 1}" in plain_page.url.replace("%2F", "/").replace("%40", "@")
