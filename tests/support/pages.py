"""The web pages without a browser: a client of the whole application, and what a page says."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from pt2hub.server.api.app import create_app
from pt2hub.server.pages.installation import install

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container


class Page(HTMLParser):
    """A page, read as a browser without scripts would.

    Attributes:
        text: What it says, blanks folded.
        links: Addresses of its links.
        fields: Name and value of each input of its forms.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self._said: list[str] = []
        self.links: list[str] = []
        self.fields: list[tuple[str, str]] = []
        self.feed(html)
        self.text = re.sub(r"\s+", " ", "".join(self._said)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert "style" not in given, f"an inline style, which the policy forbids: {tag} {given}"
        assert not any(name.startswith("on") for name in given), f"an inline script: {tag} {given}"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "input":
            self.fields.append((given.get("name", ""), given.get("value", "")))

    def handle_data(self, data: str) -> None:
        self._said.append(data)


@pytest.fixture
def web(container: Container, config: ServerConfig) -> FlaskClient:
    """A client of the pages and the API, not signed in."""
    app = create_app(container, config)
    install(app)
    return app.test_client()


@pytest.fixture
def signed_in(web: FlaskClient, container: Container) -> FlaskClient:
    """The same client, signed in with an admin's token called `tester`."""
    token = container.access.create_token("tester", admin=True)
    response = web.post("/sign-in", data={"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    assert response.status_code == 303, response.get_data(as_text=True)
    return web
