"""Signing in and out, and forms: what is believed, and that nothing typed is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.server.api.visitors import COOKIE, HOST_COOKIE
from pt2hub.wire.documents import write_document
from support.pages import Page
from support.registry import a_spec

if TYPE_CHECKING:
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container

HERE = {"Sec-Fetch-Site": "same-origin"}
FOREIGN = "pt2_okli3eqvafx3qds2phllgxjijl5tdybn2eh3wnc7lfzauhzha5ea_q2l46x"
"""A token as they are made, of a server that is no more."""
SPEC = write_document(a_spec()) + "# <script>alert(1)</script> & 'quotes'\n"


def read(response: TestResponse) -> Page:
    return Page(response.get_data(as_text=True))


def expire(config: ServerConfig) -> None:
    with psycopg.connect(str(config.database_url), autocommit=True) as connection:
        connection.execute("UPDATE web_sessions SET last_used_at = now() - interval '13 hours'")


def test_a_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(
    web: FlaskClient, container: Container
) -> None:
    token = container.access.create_token("ada")
    answer = web.post("/sign-in", data={"token": f" {token}\n", "to": "/builds?state=failed"}, headers=HERE)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/builds?state=failed")
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert token not in cookie
    assert "ada" in read(web.get("/sign-in")).text


def test_over_https_the_cookie_is_of_this_host_alone_and_no_other_name_counts(
    web: FlaskClient, container: Container
) -> None:
    def is_known(address: str) -> bool:
        return "signed in with the token ada" in read(web.get("/sign-in", base_url=address)).text

    token = container.access.create_token("ada")
    web.set_cookie(COOKIE, "of a neighbouring host")
    answer = web.post("/sign-in", data={"token": token}, headers={**HERE, "Origin": "https://localhost"})
    taken, given = answer.headers.getlist("Set-Cookie")
    assert taken.startswith(f"{COOKIE}=; ")
    assert given.startswith(f"{HOST_COOKIE}=")
    assert {"Secure", "HttpOnly", "Path=/"} <= set(given.split("; "))
    assert "Domain" not in given
    assert is_known("https://localhost")

    web.delete_cookie(HOST_COOKIE)
    web.set_cookie(COOKIE, container.web_sessions.open(token))
    assert (is_known("https://localhost"), is_known("http://localhost")) == (False, True)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("", "Token is required"),
        ("pt2_wrong", "Invalid token Copy it again"),
        ("<b>", "Invalid token"),
        (FOREIGN, "Unknown token It was revoked or belongs to another server"),
    ],
)
def test_a_wrong_token_is_answered_by_the_same_form_without_it(
    web: FlaskClient, token: str, said: str
) -> None:
    answer = web.post("/sign-in", data={"token": token, "to": "/targets"}, headers=HERE)
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (401, False)
    page = read(answer)
    assert ("to", "/targets") in page.fields
    assert ("token", "") in page.fields
    assert said in page.text


@pytest.mark.parametrize(
    "address",
    [
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "\\\\evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "evil.example",
        "/sign-in?to=/sign-in",
        "/builds/0123456789abcdef/cancel",
        "/nowhere",
        "",
    ],
)
def test_signing_in_leads_to_pages_of_this_site_only(
    web: FlaskClient, container: Container, address: str
) -> None:
    token = container.access.create_token("ada")
    answer = web.post("/sign-in", data={"token": token, "to": address}, headers=HERE)
    assert answer.headers["Location"] == "/"


def test_a_form_of_more_fields_than_any_of_ours_is_not_sent_back(web: FlaskClient) -> None:
    answer = web.post("/publish", data={f"f{place}": "" for place in range(6000)}, headers=HERE)
    assert (answer.status_code, len(answer.data) < 10_000) == (413, True)


def test_signing_out_ends_the_session_wherever_its_cookie_went(signed_in: FlaskClient) -> None:
    kept = signed_in.get_cookie(COOKIE)
    assert kept is not None
    answer = signed_in.post("/sign-out", headers=HERE)
    assert (answer.status_code, signed_in.get_cookie(COOKIE)) == (303, None)
    assert "You are signed out" in read(signed_in.get(answer.headers["Location"])).text
    signed_in.set_cookie(COOKIE, kept.value)
    assert "tester" not in read(signed_in.get("/sign-in")).text


def test_a_revoked_token_ends_its_sessions(signed_in: FlaskClient, container: Container) -> None:
    assert "tester" in read(signed_in.get("/sign-in")).text
    container.access.revoke("tester")
    assert "tester" not in read(signed_in.get("/sign-in")).text


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
    ],
)
def test_what_another_site_sends_is_refused_though_its_reader_is_signed_in(
    signed_in: FlaskClient, container: Container, headers: dict[str, str]
) -> None:
    sent = {"spec": SPEC}
    answer = signed_in.post("/publish", data=sent, headers=headers)
    assert answer.status_code == 403
    assert "The form was sent from another site" in read(answer).text
    assert container.catalog.models(limit=1).models == ()
    token = container.access.create_token("evil")
    assert signed_in.post("/sign-in", data={"token": token}, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost"},
        {"Origin": "http://hub.example", "X-Forwarded-Host": "hub.example"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://hub.example"},
    ],
)
def test_a_form_of_this_site_passes_also_behind_proxies(
    signed_in: FlaskClient, headers: dict[str, str]
) -> None:
    sent = {"spec": SPEC}
    assert signed_in.post("/publish", data=sent, headers=headers).status_code == 303


def test_a_form_whose_session_ended_comes_back_whole_and_goes_on_with_a_token(
    signed_in: FlaskClient, container: Container, config: ServerConfig
) -> None:
    sent = {"spec": SPEC, "priority": "7"}
    expire(config)
    answer = signed_in.post("/publish?kept=1", data=sent, headers=HERE)
    assert answer.status_code == 401
    page = read(answer)
    assert "Nothing was changed" in page.text
    assert 'action="/publish?kept=1"' in answer.text
    fields = dict(page.fields)
    assert (fields["spec"], fields["priority"]) == (SPEC, "7")

    wrong = signed_in.post("/publish?kept=1", data={**fields, "pt2hub_token": "pt2_wrong"}, headers=HERE)
    assert (wrong.status_code, dict(read(wrong).fields)["spec"]) == (401, SPEC)
    assert "pt2_wrong" not in wrong.text

    token = container.access.create_token("ada")
    fields = dict(read(wrong).fields) | {"pt2hub_token": token}
    answer = signed_in.post("/publish?kept=1", data=fields, headers=HERE)
    assert (answer.status_code, "HttpOnly" in answer.headers["Set-Cookie"]) == (303, True)
    assert container.publish.version("vision/resnet18", 1).builds[0].priority == 7
    assert "ada" in read(signed_in.get("/sign-in")).text


def test_who_types_a_token_over_a_connection_that_others_can_read_is_warned(web: FlaskClient) -> None:
    def warned(address: str, **headers: str) -> bool:
        return "not encrypted" in read(web.get("/sign-in", base_url=address, headers=headers)).text

    assert warned("http://hub.example:8400")
    assert warned("http://192.0.2.7")
    assert not any(warned(address) for address in ("http://localhost", "http://127.0.0.1:84", "http://[::1]"))
    assert not warned("https://hub.example")
    assert not warned("http://hub.example", **{"Sec-Fetch-Site": "none"})  # a proxy in front ends HTTPS


def test_pages_answer_head_and_options(web: FlaskClient) -> None:
    head = web.head("/sign-in")
    assert (head.status_code, head.get_data()) == (200, b"")
    options = web.options("/publish")
    assert {"GET", "HEAD", "POST", "OPTIONS"} == set(options.headers["Allow"].split(", "))


def test_a_form_larger_than_any_page_has_is_refused_unread(signed_in: FlaskClient) -> None:
    answer = signed_in.post("/publish", data={"spec": "x" * (1 << 21)}, headers=HERE)
    assert (answer.status_code, answer.mimetype) == (413, "text/html")
