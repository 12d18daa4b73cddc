"""What holds for every route: tokens, releases, hints, the log, and the pages that describe the API."""

from __future__ import annotations

import http.client
import json
import re
import time
from contextlib import ExitStack
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest
from structlog.testing import capture_logs

from pt2hub import errors
from pt2hub.domain.tokens import SERVER
from pt2hub.server.api.context import PAGES
from pt2hub.server.gunicorn_server import THREADS
from pt2hub.server.pages.sessions import COOKIE
from pt2hub.server.services.promotion.reasons import MAX_REASON_CHARS
from pt2hub.version import __version__
from pt2hub.wire.problems import from_dict
from support.api_process import running_api
from support.registry import a_spec

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient
    from werkzeug.routing import Rule

    from pt2hub.server.container import Container

CHANGING = {"POST", "PUT", "PATCH", "DELETE"}
CHANGE_ONLY_COOKIES = {"sign_in", "sign_out"}
"""Forms of pages that change nothing but cookies of who sends them."""
VALUES: dict[str, Any] = {"digest": f"sha256:{'0' * 64}", "number": 1, "id": 1, "role": 1, "token": 1}


def address(rule: Rule, values: dict[str, Any] = VALUES) -> str:
    return re.sub(r"<(?:[^<>:]+:)?(\w+)>", lambda match: str(values.get(match[1], "x")), rule.rule)


EXCHANGES = [("POST", f"/api/v1/{path}") for path in ("oidc/token", "device/code", "device/token")]
"""Those that need none: what they exchange is the proof, or a person gives it in a browser."""
READING = ("POST", "/api/v1/resolve")
"""The one request with a body that changes nothing: a query cannot hold the description of a machine."""
REPORT = ("POST", f"/api/v1/blobs/{VALUES['digest']}/check")
"""A report that a blob is damaged: readers make it, and the server only reads the blob again."""


def test_every_route_that_changes_anything_needs_the_token(web: FlaskClient) -> None:
    asked = [
        (method, address(rule))
        for rule in web.application.url_map.iter_rules()
        if not rule.endpoint.startswith(f"{PAGES}.")  # they need a session, as the next test says
        for method in sorted(CHANGING & (rule.methods or set()))
    ]
    assert {"POST /api/v1/versions", f"PUT /api/v1/blobs/{VALUES['digest']}"} <= {
        " ".join(one) for one in asked
    }
    asked.remove(READING)
    asked.remove(REPORT)
    assert web.open(REPORT[1], method=REPORT[0]).status_code == 404
    for exchange in EXCHANGES:
        asked.remove(exchange)
    assert web.open(READING[1], method=READING[0], data=b"{}").status_code == 422
    for method, path in asked:
        response = web.open(path, method=method, data=b"{}")
        assert (method, path, response.status_code) == (method, path, 401)
        assert response.get_json(force=True)["code"] == "unauthorized"


def test_every_form_of_a_page_needs_a_session_and_a_page_of_ours_and_changes_nothing_without(
    web: FlaskClient, container: Container, migrated_url: str
) -> None:
    build = container.publish.submit(a_spec(), by=SERVER).builds[0]
    values = {**VALUES, "team": "vision", "name": "resnet18", "alias": "prod", "build": build.id}
    rules = [rule for rule in web.application.url_map.iter_rules() if rule.endpoint.startswith(f"{PAGES}.")]
    changing = {
        rule.endpoint.removeprefix(f"{PAGES}."): address(rule, values)
        for rule in rules
        if CHANGING & (rule.methods or set())
    }
    assert {"publish", "cancel_build", "retry_build", "move_alias", "remove_alias", "measure"} <= set(
        changing
    )
    assert not {rule.rule for rule in rules if (rule.methods or set()) & (CHANGING - {"POST"})}
    token = container.access.create_token("ada", admin=True)
    before = rows(migrated_url)
    strangers = sent(web, changing, {"Sec-Fetch-Site": "same-origin"})
    assert {name for name, status in strangers.items() if status != 401} == CHANGE_ONLY_COOKIES - {"sign_in"}
    assert set(sent(web, changing, {"Sec-Fetch-Site": "cross-site"}).values()) == {403}
    web.set_cookie(COOKIE, container.web_sessions.open(token))
    assert set(sent(web, changing, {"Origin": "https://evil.example"}).values()) == {403}
    assert set(sent(web, changing, {"Sec-Fetch-Site": "same-site"}).values()) == {403}
    assert rows(migrated_url) == before


def sent(client: FlaskClient, addresses: dict[str, str], headers: dict[str, str]) -> dict[str, int]:
    """Status of the answer to a form sent to each address; its fields are such as would do something."""
    form = {"reason": "test", "alias": "prod", "number": "1", "expected": "0", "spec": "model: a/b"}
    return {
        name: client.post(path, data=form, headers=headers).status_code for name, path in addresses.items()
    }


def rows(url: str) -> dict[str, list[str]]:
    """Every row of every table that a form could change."""
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {
            name: [row for (row,) in connection.execute(f'SELECT t::text FROM "{name}" t ORDER BY 1')]
            for (name,) in names
            if name not in {"api_tokens", "rate_counters", "web_sessions"}
        }


def test_no_route_that_reads_needs_one_but_uploads_whoami_and_what_is_for_admins_and_none_fails(
    web: FlaskClient,
) -> None:
    reading = [rule for rule in web.application.url_map.iter_rules() if "GET" in (rule.methods or ())]
    found = {rule.rule: web.get(address(rule)).status_code for rule in reading}
    guarded = {rule for rule, status in found.items() if status == 401}
    assert guarded == {
        "/api/v1/uploads/<id>",
        "/api/v1/whoami",
        "/api/v1/models/<team>/<name>/aliases/<alias>/preview",
        "/api/v1/audit",
        "/api/v1/retention",
        "/api/v1/roles",
        "/api/v1/retention/preview",
        "/api/v1/tokens",
        "/api/v1/webhooks",
        "/api/v1/webhooks/<id>/deliveries",
    }
    assert found["/audit"] == 303  # to the page for signing in
    assert set(found.values()) <= {200, 302, 303, 401, 404, 422}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("HEAD", "/api/v1/targets", 200),
        ("GET", "/api/v1/docs", 200),
        ("GET", "/nowhere", 404),
        ("POST", "/healthz", 401),
        ("PATCH", "/api/v1/versions", 401),
        ("GET", "/api/v1/builds/a b", 422),
    ],
)
def test_every_answer_names_the_servers_release(
    api: FlaskClient, method: str, path: str, status: int
) -> None:
    response = api.open(path, method=method)
    assert (response.status_code, response.headers["Pt2hub-Version"]) == (status, __version__)


def test_a_client_that_is_too_old_is_told_what_to_install(api: FlaskClient) -> None:
    response = api.get("/api/v1/targets", headers={"User-Agent": "pt2hub/0.0.9"})
    assert response.status_code == 426
    assert response.headers["Pt2hub-Version"] == __version__
    error = from_dict(response.get_json(force=True))
    assert isinstance(error, errors.ClientTooOld)
    assert "pip install" in (error.hint or "")


@pytest.mark.parametrize("agent", [f"pt2hub/{__version__}", "pt2hub/99.0.0", "curl/8.5.0", "Mozilla/5.0", ""])
def test_every_other_client_is_answered(api: FlaskClient, agent: str) -> None:
    assert api.get("/api/v1/targets", headers={"User-Agent": agent}).status_code == 200


def test_hints_name_addresses_of_the_server_that_was_asked(api: FlaskClient, bearer: dict[str, str]) -> None:
    there = "http://registry.example:8400"
    wrong = api.post("/api/v1/versions", json={"model": "Net"}, headers=bearer, base_url=there)
    assert f"at {there}/api/v1/spec.schema.json" in wrong.get_json(force=True)["hint"]
    parameter = api.get("/api/v1/builds/a b", base_url=there)
    assert parameter.get_json(force=True)["hint"].startswith(f"{there}/api/v1/openapi.json ")
    assert "GET" not in parameter.get_json(force=True)["hint"]


def test_a_parameter_that_is_missing_is_not_said_to_have_been_given(api: FlaskClient) -> None:
    (detail,) = api.get("/api/v1/resolve?other=1").get_json(force=True)["details"]
    assert (detail["path"], detail["given"]) == ("reference", None)


def test_reading_is_logged_only_in_detail_and_all_else_always(
    api: FlaskClient, bearer: dict[str, str]
) -> None:
    with capture_logs() as lines:
        api.get("/api/v1/targets")
        api.head("/healthz")
        api.get("/nowhere")
        api.post("/api/v1/versions", data=b"{}", headers=bearer)
    assert [(line["log_level"], line["path"], line["status"]) for line in lines] == [
        ("debug", "/api/v1/targets", 200),
        ("debug", "/healthz", 200),
        ("info", "/nowhere", 404),
        ("info", "/api/v1/versions", 422),
    ]


REFUSED = [
    (b"GET /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400),
    (b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    (b"GET /api/" + b"x" * 9000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414),
    (b"GET /" + b"x" * 90_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414),
    (b"GET /healthz HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
    (b"GET /healthz HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n", 417),
]


def test_what_never_reaches_the_application_is_answered_as_every_other_error(
    tmp_path: Path, migrated_url: str
) -> None:
    with running_api(tmp_path, migrated_url) as api:
        for sent, status in REFUSED:
            with api.connect() as connection:
                connection.sendall(sent)
                response = http.client.HTTPResponse(connection)
                response.begin()
                assert (response.status, response.headers["Pt2hub-Version"]) == (status, __version__)
                assert response.headers["Content-Type"] == "application/problem+json"
                error = from_dict(json.loads(response.read()))
                assert (error.code, bool(error.hint)) == ("usage", True)
        headers = {"Authorization": f"Bearer {api.token}"}
        longest = quote("\U0001f600" * MAX_REASON_CHARS)
        address = f"/api/v1/models/a/b/aliases/prod?expected=1&reason={longest}"
        assert api.ask("DELETE", address, **headers)[0].status == 404


def test_clients_that_ask_nothing_or_never_hang_up_keep_nobody_waiting(
    tmp_path: Path, migrated_url: str
) -> None:
    with running_api(tmp_path, migrated_url) as api, ExitStack() as lingering:
        for _ in range(2 * THREADS):
            lingering.enter_context(api.connect())
        began = time.monotonic()
        for _ in range(4):
            connection = lingering.enter_context(api.connect())
            connection.sendall(api.head("GET", "/healthz", "Connection: close"))
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert api.ask("GET", "/healthz")[0].status == 200
        assert (
            time.monotonic() - began < 4.0
        )  # gunicorn waits for the first kind for five seconds, for each of the others for two


class Page(HTMLParser):
    """What a page holds: places, links, elements, attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                assert value not in self.ids
                self.ids.add(value or "")
            if name in {"href", "src"}:
                self.links.append(value or "")


def test_the_docs_page_shows_every_route_shape_and_error(api: FlaskClient) -> None:
    response = api.get("/api/v1/docs")
    assert (response.status_code, response.mimetype) == (200, "text/html")
    page, document = Page(response.text), api.get("/api/v1/openapi.json").get_json()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["operationId"] in page.ids, path
    assert {f"schema-{name}" for name in document["components"]["schemas"]} <= page.ids
    assert {
        f"error-{cls.code}" for cls in errors.walk() if cls.__module__.startswith("pt2hub.")
    } - page.ids == {"error-error"}
    assert (
        "Position in the log, from 1; the cursor for the next lines." in response.text
    )  # fields are explained


def test_the_docs_page_needs_no_script_and_no_other_host(api: FlaskClient) -> None:
    response = api.get("/api/v1/docs")
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    page = Page(response.text)
    assert not page.elements & {"script", "link", "img", "iframe", "object", "form"}
    assert not [name for name in page.attributes if name.startswith("on") or name == "style"]
    assert {link for link in page.links if not link.startswith("#")} == {"openapi.json", "spec.schema.json"}
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.ids
    assert "<br/>" not in response.text


def test_the_docs_page_leads_back_to_the_pages(api: FlaskClient, web: FlaskClient) -> None:
    with_pages = web.get("/api/v1/docs")
    assert {"/", "/builds", "/changes"} <= set(Page(with_pages.text).links)
    assert (
        with_pages.headers["Content-Security-Policy"]
        == api.get("/api/v1/docs").headers["Content-Security-Policy"]
    )
