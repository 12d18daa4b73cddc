"""Errors under addresses of pages are pages that help; programs get problem documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from pt2hub.domain.tokens import SERVER
from pt2hub.server.api.app import create_app
from pt2hub.server.container import open_container
from pt2hub.server.pages.installation import install
from pt2hub.server.pages.sessions import COOKIE
from pt2hub.server.pages.templates import ASSETS
from support.pages import Page
from support.registry import a_spec

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_an_address_without_a_page_is_a_page_that_leads_on(web: FlaskClient, method: str) -> None:
    answer = web.open("/modles/vision/<b>resnet18", method=method)
    assert (answer.status_code, answer.mimetype) == (404, "text/html")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "<b>" not in answer.text
    page = Page(answer.text)
    assert "Page not found" in page.text
    assert any(link.startswith("/?q=") and link.endswith("resnet18") for link in page.links)


SLASHES = {
    "/builds/?state=failed&target=a%2Fb": "/builds?state=failed&target=a%2Fb",
    "/models/vision/resnet18/": "/models/vision/resnet18",
    "/publish//": "/publish",
    "/models/": "/models",
    "/models/%0d%0aX:1/": "/models/%0D%0AX:1",
    "/nowhere/": None,
    "/static/": None,
    "/builds/x/cancel/": None,  # a form's own
    "/api/v1/models/": None,
    "/healthz/": None,
}


def test_a_slash_too_many_leads_to_the_page_that_was_meant_if_there_is_one(web: FlaskClient) -> None:
    answers = {address: web.get(address) for address in SLASHES}
    assert {address: answer.headers.get("Location") for address, answer in answers.items()} == SLASHES
    assert {answer.status_code for answer in answers.values()} == {308, 404}


def test_an_address_that_is_too_long_is_said_to_be_in_the_readers_own_form(web: FlaskClient) -> None:
    long = "%41" * 3000
    page = web.get(f"/?q={long}")
    assert (page.status_code, page.mimetype) == (414, "text/html")
    assert (
        "The URL is too long (9004 bytes, at most 8000). Shorten q: it has 3,000 characters."
        in Page(page.text).text
    )
    assert max(map(len, Page(page.text).links)) < 8000
    api = web.get(f"/api/v1/models?search={long}")
    assert (api.status_code, api.content_type) == (414, "application/problem+json")


@pytest.mark.parametrize("path", ["/api/v1/nowhere", "/api", "/v2/nowhere", "/healthz/nowhere", "/metrics/x"])
def test_programs_get_problem_documents(web: FlaskClient, path: str) -> None:
    answer = web.get(path)
    assert (answer.status_code, answer.content_type) == (404, "application/problem+json")


def test_a_method_that_a_page_does_not_take_is_named(web: FlaskClient) -> None:
    answer = web.delete("/builds")
    assert (answer.status_code, answer.mimetype) == (405, "text/html")


def test_names_near_a_missing_one_are_links(web: FlaskClient, container: Container) -> None:
    container.publish.submit(a_spec(), by=SERVER)
    missing = web.get("/models/vision/resnet81")
    assert missing.status_code == 404
    assert "/models/vision/resnet18" in Page(missing.text).links
    later = Page(web.get("/models/vision/resnet18/versions/7").text)
    assert "/models/vision/resnet18/versions/1" in later.links
    assert "Its only version is 1" in later.text


def test_what_nobody_foresaw_has_a_number_that_the_log_has_too(
    container: Container, config: ServerConfig
) -> None:
    app = create_app(container, config)
    install(app)
    app.view_functions["pages.targets"] = lambda: str(1 // 0)
    with capture_logs() as logs:
        answer = app.test_client().get("/targets")
    assert (answer.status_code, answer.mimetype) == (500, "text/html")
    text = Page(answer.text).text
    number = re.search(r"id ([0-9a-f]{8})", text)
    assert number
    assert [line["id"] for line in logs if "id" in line] == [number[1]]
    assert "division" not in text


def test_what_failed_is_told_even_where_no_page_can_be_made(
    container: Container, config: ServerConfig
) -> None:
    app = create_app(container, config)
    install(app)
    del app.extensions[ASSETS]
    answer = app.test_client().get("/nowhere")
    assert (answer.status_code, answer.mimetype) == (404, "text/plain")
    assert "Page not found" in answer.text


def test_without_the_database_pages_say_so_and_when_to_come_back(config: ServerConfig) -> None:
    with open_container(config, database_url="postgresql://127.0.0.1:9/none") as container:
        app = create_app(container, config)
        install(app)
        client = app.test_client()
        client.set_cookie(COOKIE, "of a session")
        answer = client.get("/builds?state=failed")
        assert (answer.status_code, answer.mimetype) == (503, "text/html")
        assert int(answer.headers["Retry-After"]) > 0
        assert "/builds?state=failed" in Page(answer.text).links
