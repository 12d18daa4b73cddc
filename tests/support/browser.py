"""A real browser on the site: what no page of ours may do is watched, and what people judge has a fixture.

`page` fails its test when a script failed, the content security policy stopped something, or another host was asked.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        FloatRect,
        Page,
        Request,
        Response,
        ViewportSize,
        WebError,
    )

    from support.site import Site

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
"""Names of the systems' own browsers, as the Makefile seeks them."""
FLAGS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
DESK: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
SIZES: tuple[ViewportSize, ...] = (PHONE, DESK, {"width": 2560, "height": 1440})
"""Sizes of windows in which `make screenshots` takes pictures."""
MS = 30_000
"""Milliseconds until something that must happen counts as not happening: tests share the cores."""
TALLEST = 2000
"""Pixels of a page that a screenshot shows."""
_LOOKING = Path(__file__).with_name("looking.js").read_text().rstrip(";\n")


class Axe(Protocol):
    """Fails where a page cannot be used by everyone."""

    def __call__(self, page: Page, *rules: str) -> None:
        """Judges a page. It is whole no more afterwards: of rows that are alike one stays.

        Args:
            page: As it is now.
            *rules: Of axe; all of WCAG's levels A and AA without any.
        """


class Shoot(Protocol):
    """Takes pictures of a page, for people to look at."""

    def __call__(self, page: Page, name: str) -> None:
        """Takes them: on a desk, light and dark, and on a phone; with `PT2HUB_SCREENSHOTS` at all widths in both themes.

        Args:
            page: As it is now; its size and scheme are those of a desk afterwards.
            name: Of the files.
        """


class Watch:
    """Collects what no page of ours may do."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self._url = url
        self._found: list[tuple[str, str]] = []
        self._documents: set[str] = set()
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._request)
        context.on("response", self._response)

    @property
    def complaints(self) -> list[str]:
        """What was seen. That a browser notes a page's own status, which tests check, is none."""
        return [
            text
            for text, place in self._found
            if not (place in self._documents and text.startswith("Failed to load resource"))
        ]

    def forgive(self) -> None:
        """Forgets what was seen: a test provoked it."""
        self._found.clear()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self._found.append((message.text, message.location["url"]))

    def _error(self, error: WebError) -> None:
        self._found.append((error.error.stack or error.error.message, ""))

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self._url}/", "data:", "blob:")):
            self._found.append((f"another host was asked: {request.url}", ""))

    def _response(self, response: Response) -> None:
        if response.request.is_navigation_request():
            self._documents.add(response.url)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A file's browser: the system's, else Playwright's own.

    Not the session's: as long as Playwright lives, its event loop runs in this thread, and other tests have their own.
    """
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=MS)
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    with sync_playwright() as playwright:
        if found is None and not Path(playwright.chromium.executable_path).exists():
            pytest.fail("There is no Chromium: run make browser.")
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


def open_context(chromium: Browser, site: Site, **settings: Any) -> BrowserContext:
    """A browser's window with cookies of its own, on the site, in a zone that is not UTC."""
    given = {"viewport": DESK, "locale": "en-GB", "timezone_id": "Europe/Berlin", "reduced_motion": "reduce"}
    context = chromium.new_context(base_url=site.url, **{**given, **settings})
    context.set_default_timeout(MS)
    return context


@pytest.fixture
def context(chromium: Browser, site: Site) -> Iterator[BrowserContext]:
    """A window with cookies of its own."""
    made = open_context(chromium, site)
    yield made
    made.close()


@pytest.fixture
def watch(context: BrowserContext, site: Site) -> Watch:
    """What the test's pages did that they may not; `watch.forgive()` for what a test provoked."""
    return Watch(context, site.url)


@pytest.fixture
def page(context: BrowserContext, watch: Watch) -> Iterator[Page]:
    """A page that is nowhere yet; nobody is signed in."""
    made = context.new_page()
    yield made
    made.close()
    assert watch.complaints == []


@pytest.fixture
def plain_page(chromium: Browser, site: Site) -> Iterator[Page]:
    """The same in a browser that runs no scripts."""
    context = open_context(chromium, site, java_script_enabled=False)
    watch = Watch(context, site.url)
    yield context.new_page()
    context.close()
    assert watch.complaints == []


@pytest.fixture(scope="session")
def axe() -> Axe:
    """See `Axe`."""
    source = AXE.read_text()

    def judge(page: Page, *rules: str) -> None:
        if not page.evaluate("() => 'axe' in window"):
            page.evaluate(source)
        found = _look(page, "violations", list(rules))
        assert not found, f"{page.url}\n" + "\n".join(found)

    return judge


@pytest.fixture(scope="session")
def shoot() -> Shoot:
    """See `Shoot`."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> None:
        page.emulate_media(color_scheme="dark")
        _picture(page, SCREENSHOTS / f"{name}-dark.png")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(PHONE)
        _picture(page, SCREENSHOTS / f"{name}-phone.png")
        page.set_viewport_size(DESK)
        _picture(page, SCREENSHOTS / f"{name}-light.png")

    def take_all(page: Page, name: str) -> None:
        for theme in ("dark", "light"):
            page.emulate_media(color_scheme=theme)
            for size in SIZES:
                page.set_viewport_size(size)
                _picture(page, SCREENSHOTS / f"{name}-{size['width']}-{theme}.png")
        page.set_viewport_size(DESK)

    return take_all if os.environ.get("PT2HUB_SCREENSHOTS") else take


def _picture(page: Page, path: Path) -> None:
    settle(page)
    width, height = page.evaluate("() => [innerWidth, document.documentElement.scrollHeight]")
    clip: FloatRect = {"x": 0, "y": 0, "width": width, "height": min(height, TALLEST)}
    page.screenshot(path=path, full_page=True, clip=clip)


def sign_in(page: Page, site: Site) -> None:
    """Signs a page's window in as the admin `browser`, without the form."""
    ((name, value),) = site.cookie().items()
    page.context.add_cookies([{"name": name, "value": value, "url": site.url}])


def open_menu(page: Page) -> None:
    """Opens the menu at the right of the header."""
    page.locator("header details[data-menu] > summary").click()


def settle(page: Page) -> None:
    """Waits until what scripts changed is drawn."""
    _look(page, "settled")


def wider(page: Page, width: int) -> list[str]:
    """What makes a page wider than a window of this width; its size is a desk's again afterwards."""
    page.set_viewport_size({"width": width, "height": 800})
    settle(page)
    found: list[str] = _look(page, "wider")
    page.set_viewport_size(DESK)
    return found


def shifts(page: Page) -> list[tuple[float, str]]:
    """What moved by itself after it was shown: how much, as Chromium counts it, and what."""
    found: list[tuple[float, str]] = _look(page, "shifts")
    return found


def _look(page: Page, what: str, argument: object = None) -> Any:
    return page.evaluate(f"argument => {_LOOKING}.{what}(argument)", argument)
