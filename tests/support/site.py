"""The web pages as they run in production: a real server over the demo's data, one for all tests that look at pages.

Tests share it, so that one which changes something changes a model of its own: `site.registry` makes one.
"""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pt2hub.server.pages.sessions import COOKIE
from support.api_process import ApiProcess, running_api
from support.seeded_story import beat
from support.workbench import FACTORIES
from support.working import Works, environ_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.container import Container
    from support.registry import Registry
    from support.seeded_story import SeededStory


@dataclass(frozen=True)
class Site:
    """A running server with data, and a test's handles on it.

    Attributes:
        api: Its process.
        url: Its address, without a slash at the end.
        token: An admin's, called `browser`.
        folder: Of its storage, home and log.
        works: Starts workers on it; every one is killed at the end.
    """

    api: ApiProcess
    url: str
    token: str
    folder: Path
    works: Works

    @property
    def container(self) -> Container:
        """Its services, in the test's process."""
        return self.api.registry.services

    @property
    def registry(self) -> Registry:
        """What tests do with services again and again."""
        return self.api.registry

    def cookie(self) -> dict[str, str]:
        """The cookie of a new session of the token's, as browsers and other clients take it."""
        return {COOKIE: self.container.web_sessions.open(self.token)}

    def get(self, address: str, cookie: dict[str, str] | None = None) -> tuple[int, str]:
        """Status and HTML of a page, without a browser; no text where the answer is none.

        Args:
            address: Its path and query.
            cookie: Of a session, as `cookie` makes it; nobody is signed in without one.
        """
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in (cookie or {}).items())}
        connection = http.client.HTTPConnection("127.0.0.1", self.api.port, timeout=20)
        try:
            connection.request("GET", address, headers=headers)
            response = connection.getresponse()
            data = response.read()
            is_page = response.getheader("Content-Type", "").startswith("text/html")
            return response.status, data.decode() if is_page else ""
        finally:
            connection.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, seeded_story: SeededStory) -> Iterator[Site]:
    """The server with the demo's data."""
    folder = tmp_path_factory.mktemp("site")
    database = seeded_story.copy(folder)
    with running_api(folder, database, PT2HUB_FACTORIES=f"torchvision.models,timm,{FACTORIES}") as api:
        services = api.registry.services
        beat(services)
        works = Works(services, environ_of(folder, database), folder)
        token = services.access.create_token("browser", admin=True)
        try:
            yield Site(api, f"http://127.0.0.1:{api.port}", token, folder, works)
        finally:
            works.end()
