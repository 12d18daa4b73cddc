"""Signing in with a provider that runs here, over HTTP: who one is then, and every way in which it is refused."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from joserfc.jwk import RSAKey

from pt2hub.domain.people import Role
from pt2hub.domain.reading import ReadMode
from pt2hub.domain.tokens import Scope
from pt2hub.server.api.visitors import COOKIE, HOST_COOKIE
from pt2hub.server.services.access.sign_in import name_person
from support.access import Case, send
from support.oidc_provider import ADA
from support.people import ROOT, Browser, make_web, settings_of
from support.registry import a_spec

if TYPE_CHECKING:
    import pytest
    from werkzeug.test import TestResponse

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from support.oidc_provider import Provider


def sessions(container: Container) -> int:
    with container._sessions.begin() as session:  # no service counts them
        return int(session.connection().exec_driver_sql("SELECT count(*) FROM web_sessions").scalar_one())


def test_a_person_signs_in_and_acts_in_their_own_name(browser: Browser, container: Container) -> None:
    answer = browser.sign_in(to="/builds?state=failed")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/builds?state=failed")
    cookies = {each.partition("=")[0]: each for each in answer.headers.getlist("Set-Cookie")}
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookies[COOKIE].split("; "))
    assert cookies["pt2hub_sign_in"].startswith("pt2hub_sign_in=;")
    assert "ada@acme.example" in browser.text("/")
    assert browser.send("/publish", spec=_text(a_spec())).status_code == 303
    version = container.publish.version("vision/resnet18", 1)
    assert version.published_by is not None
    assert (version.published_by.kind, version.published_by.name) == ("person", "ada@acme.example")
    (person,) = container.people.all()
    assert (person.subject, person.full_name, person.groups) == ("1001", "Ada Lovelace", ("vision-team",))
    assert version.published_by.id == str(person.id)
    refused = browser.send("/publish", spec=_text(a_spec(model="nlp/bert")))
    assert refused.status_code == 403
    assert "your roles allow: build, measure, publish, read of vision/*" in refused.get_data(as_text=True)
    browser.send("/sign-out")
    assert "ada@acme.example" not in browser.text("/")
    assert sessions(container) == 0


def _text(spec: dict[str, Any]) -> str:
    from pt2hub.wire.documents import write_document

    return write_document(spec)


def test_the_provider_is_asked_with_state_nonce_and_pkce(browser: Browser) -> None:
    begun = browser.web.get("/sign-in/provider?to=/targets")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(begun.headers["Location"]).query).items()}
    assert asked["code_challenge_method"] == "S256"
    assert asked["scope"] == "openid profile email"
    assert asked["redirect_uri"] == "http://localhost/sign-in/callback"
    assert all(len(asked[name]) >= 43 for name in ("state", "nonce", "code_challenge"))
    assert len({asked[name] for name in ("state", "nonce", "code_challenge")}) == 3
    cookie = begun.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/sign-in", "Max-Age=600"} <= set(cookie.split("; "))
    assert asked["state"] not in cookie
    again = browser.web.get("/sign-in/provider")
    assert asked["state"] not in again.headers["Location"]


def wrong(code: str, status: int = 401, **changes: Any) -> tuple[str, int, dict[str, Any]]:
    return code, status, changes


REFUSED = {
    "another audience": wrong("id_token_wrong_audience", aud="other"),
    "another party": wrong("id_token_wrong_audience", azp="other"),
    "two audiences and no party": wrong("id_token_wrong_audience", aud=["pt2hub", "other"]),
    "another issuer": wrong("id_token_wrong_issuer", iss="https://evil.example"),
    "expired": wrong("id_token_expired", exp=time.time() - 3600),
    "a clock ahead": wrong("id_token_expired", iat=time.time() + 3600),
    "without times": wrong("id_token_expired", exp=None),
    "another nonce": wrong("id_token_rejected", nonce="of another sign-in"),
    "no nonce": wrong("id_token_rejected", nonce=None),
    "no subject": wrong("id_token_rejected", sub=None),
}


def test_a_wrong_id_token_is_refused_with_a_sentence_and_a_code(
    browser: Browser, container: Container
) -> None:
    for code, status, changes in REFUSED.values():
        browser.provider.changes = changes
        expect_refusal(browser, container, browser.begin(), code, status)
    browser.provider.changes = {}
    browser.provider.key = RSAKey.generate_key(2048, {"kid": "stranger"})
    expect_refusal(browser, container, browser.begin(), "id_token_signature", 401)


def expect_refusal(browser: Browser, container: Container, back: str, code: str, status: int) -> str:
    """The browser comes back, and is told why it is not signed in."""
    answer = browser.web.get(f"{urlsplit(back).path}?{urlsplit(back).query}")
    text = answer.get_data(as_text=True)
    assert (answer.status_code, f"<code>{code}</code>" in text) == (status, True), text
    assert "Sign in with Acme" in text
    assert "no-store" in answer.headers["Cache-Control"]
    assert (sessions(container), container.people.all()) == (0, ())
    return text


def test_what_the_provider_refuses_ends_in_a_page(browser: Browser, container: Container) -> None:
    back = browser.begin()
    state = parse_qs(urlsplit(back).query)["state"][0]
    denied = f"/sign-in/callback?error=access_denied&error_description=<b>Not+you</b>&state={state}"
    text = expect_refusal(browser, container, denied, "sign_in_denied", 401)
    assert "&lt;b&gt;Not you" in text
    for error, code, status in (
        ("invalid_grant", "sign_in_code_rejected", 401),
        ("invalid_client", "issuer_unavailable", 503),
    ):
        browser.provider.refusal = error
        expect_refusal(browser, container, browser.begin(), code, status)
    browser.provider.refusal = None
    expect_refusal(
        browser, container, f"/sign-in/callback?state={browser_state(browser)}", "sign_in_denied", 401
    )


def browser_state(browser: Browser) -> str:
    return parse_qs(urlsplit(browser.begin()).query)["state"][0]


def test_an_answer_counts_once_and_in_the_browser_that_asked(browser: Browser, container: Container) -> None:
    back = browser.begin()
    other = make_web(container, browser.web.application.extensions["pt2hub"].config)
    victim = Browser(other, browser.provider)
    expect_refusal(victim, container, back, "sign_in_mismatch", 401)
    victim.begin()
    expect_refusal(
        victim, container, back, "sign_in_mismatch", 401
    )  # an attacker's code in the victim's browser
    back = browser.begin()
    wrong_issuer = back.replace(urlsplit(browser.provider.issuer).netloc.replace(":", "%3A"), "evil.example")
    assert wrong_issuer != back
    expect_refusal(browser, container, wrong_issuer, "id_token_wrong_issuer", 401)
    back = browser.begin()
    parts = urlsplit(back)
    cookie = browser.web.get_cookie("pt2hub_sign_in", path="/sign-in")
    assert cookie is not None
    assert browser.web.get(f"{parts.path}?{parts.query}").status_code == 303
    assert browser.web.get(f"{parts.path}?{parts.query}").status_code == 401  # the cookie is gone
    browser.web.set_cookie("pt2hub_sign_in", cookie.value, path="/sign-in")
    used = browser.web.get(f"{parts.path}?{parts.query}").get_data(as_text=True)
    assert "sign_in_code_rejected" in used
    for nonsense in ("", "é.x", "a.b.c", "." * 50):
        browser.web.set_cookie("pt2hub_sign_in", nonsense, path="/sign-in")
        assert browser.web.get("/sign-in/callback?code=x&state=é").status_code == 401


def test_signing_in_leads_to_pages_of_this_site_only(browser: Browser) -> None:
    for to in (
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "/nowhere",
        "/sign-in/provider",
    ):
        assert browser.sign_in(to=to).headers["Location"] == "/", to


def test_a_provider_that_is_away_ends_in_a_page(browser: Browser) -> None:
    browser.provider.named = "https://evil.example"  # it calls itself something else
    answer = browser.web.get("/sign-in/provider?to=/targets")
    assert answer.status_code == 503
    assert "issuer_unavailable" in answer.get_data(as_text=True)


def test_without_a_provider_there_is_none_to_sign_in_with(container: Container, config: ServerConfig) -> None:
    web = make_web(container, config)
    assert "Sign in with" not in web.get("/sign-in").get_data(as_text=True)
    for url in ("/sign-in/provider", "/sign-in/callback?code=x&state=y"):
        answer = web.get(url)
        assert (answer.status_code, "sign_in_unavailable" in answer.get_data(as_text=True)) == (404, True)


def test_over_https_the_session_is_of_this_host_alone(
    container: Container, config: ServerConfig, provider: Provider
) -> None:
    settings = settings_of(provider, "https://hub.example")
    web = make_web(container, replace(config, provider=settings))
    base = "http://hub.example"  # a proxy in front ends TLS, and does not say so
    begun = web.get("/sign-in/provider", base_url=base)
    name, _, rest = begun.headers["Set-Cookie"].partition("=")
    assert name == "__Host-pt2hub_sign_in"
    assert {"Secure", "HttpOnly", "Path=/"} <= set(rest.split("; "))
    assert "Domain=" not in rest
    back = provider.visit(begun.headers["Location"])
    assert back.startswith("https://hub.example/sign-in/callback?")
    secret = rest.partition(";")[0]
    web.delete_cookie(name, domain="hub.example")

    def come_back(cookie: str) -> TestResponse:
        web.set_cookie(cookie, secret, domain="hub.example")
        return web.get(f"/sign-in/callback?{urlsplit(back).query}", base_url=base)

    assert come_back("pt2hub_sign_in").status_code == 401, "such a cookie can be planted"
    answer = come_back(name)
    gone = [each for each in answer.headers.getlist("Set-Cookie") if each.startswith(f"{name}=;")]
    assert {"Secure", "Path=/", "Max-Age=0"} <= set(gone[0].split("; "))
    given = [each for each in answer.headers.getlist("Set-Cookie") if each.startswith(HOST_COOKIE)]
    assert {"Secure", "HttpOnly", "Path=/"} <= set(given[0].split("; "))


def test_a_secret_in_the_body_and_a_public_client_work_as_well(browser: Browser) -> None:
    browser.provider.methods = ["client_secret_post"]
    assert browser.sign_in().status_code == 303


NAMES: list[tuple[dict[str, Any], str]] = [
    ({"email": "Ada@Acme.example"}, "ada@acme.example"),
    ({"email": "root@acme.example", "email_verified": False}, "1001@127.0.0.1"),
    *(
        ({"email": "root@acme.example", "email_verified": said}, "1001@127.0.0.1")
        for said in ("false", "", 0, 1, None, "yes")
    ),
    ({"email": "root@acme.example", "email_verified": "true"}, "root@acme.example"),
    ({"email": None}, "1001@127.0.0.1"),
    ({"email": "release"}, "release@127.0.0.1"),
    ({"email": "a b@c", "sub": "auth0|17"}, "auth0|17@127.0.0.1"),
    ({"email": ["x"], "sub": "x y"}, f"{hashlib.sha256(b'x y').hexdigest()[:16]}@127.0.0.1"),
]


def test_records_call_people_by_a_verified_address_else_by_their_subject(
    provider: Provider,
) -> None:
    settings = settings_of(provider)
    for changes, name in NAMES:
        assert name_person(settings, {**ADA, **changes}) == name
    assert (
        name_person(replace(settings, name_claim="upn"), {**ADA, "upn": "Ada@Corp.example"})
        == "ada@corp.example"
    )


def test_groups_that_have_no_role_give_nothing_and_the_page_says_so(
    container: Container, config: ServerConfig, provider: Provider
) -> None:
    closed = replace(config, provider=settings_of(provider), read=ReadMode.AUTHENTICATED)
    browser = Browser(make_web(container, closed), provider)
    assert browser.sign_in(groups=["strangers"]).status_code == 303
    answer = browser.web.get("/")
    assert answer.status_code == 403
    assert "ada@acme.example has no role on this server" in answer.get_data(as_text=True)
    assert browser.web.get("/api/v1/models").status_code == 403
    assert "None of them has a role" in browser.text("/teams")
    assert "a token of yours would allow nothing" in browser.text("/tokens")
    assert browser.send("/tokens", name="x", scope="read", models="vision/*").status_code == 403
    container.roles.assign("strangers", Role.READER, "nlp/*", by=ROOT)
    assert browser.web.get("/").status_code == 200, "a role holds from the next request on"
    for claim in (None, "one-group", [], [1, None, "one-group"], {"a": 1}):
        assert browser.sign_in(groups=claim).status_code == 303


def test_in_the_mode_team_people_read_what_their_roles_cover(
    container: Container, config: ServerConfig, provider: Provider
) -> None:
    for model in ("vision/resnet18", "nlp/bert"):
        container.publish.submit(a_spec(model=model), by=ROOT)
    container.roles.assign("vision-team", Role.READER, "vision/*", by=ROOT)
    closed = replace(config, provider=settings_of(provider), read=ReadMode.TEAM)
    browser = Browser(make_web(container, closed), provider)
    browser.sign_in()
    assert browser.web.get("/models/vision/resnet18").status_code == 200
    assert browser.web.get("/models/nlp/bert").status_code == 404
    assert "nlp/bert" not in browser.text("/models")


def test_what_a_person_loses_at_the_provider_they_lose_with_the_next_sign_in(
    browser: Browser, container: Container
) -> None:
    browser.sign_in()
    assert browser.send("/publish", spec=_text(a_spec())).status_code == 303
    browser.sign_in(groups=[])
    assert browser.send("/publish", spec=_text(a_spec(checks={"tolerance": 0.01}))).status_code == 403
    browser.sign_in(groups=["vision-team"])
    with container._sessions.begin() as session:
        ended = session.connection().exec_driver_sql(
            "UPDATE web_sessions SET expires_at = now() RETURNING expires_at - created_at <= interval '12 hours'"
        )
        assert all(row[0] for row in ended)
    again = {"spec": _text(a_spec(checks={"tolerance": 0.02}))}
    kept = browser.send("/publish", **again)
    assert (kept.status_code, "/sign-in/provider" in kept.get_data(as_text=True)) == (401, True)
    browser.sign_in()  # in another tab
    assert browser.send("/publish", **again, pt2hub_token="").status_code == 303


def test_a_session_reads_the_api_and_changes_nothing_there(browser: Browser) -> None:
    browser.sign_in()
    assert browser.web.get("/api/v1/models").status_code == 200
    assert browser.web.get("/api/v1/whoami").status_code == 401
    case = Case("POST", "/api/v1/versions", a_spec())
    assert send(browser.web, "versions.submit", case, None).status_code == 401


def test_sign_ins_count_towards_the_limit_of_their_address(
    browser: Browser, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pt2hub.domain.limits import Limits
    from pt2hub.server.services.access.rate_limits import RateLimitService

    limits = RateLimitService(container._sessions, Limits(sign_ins_per_address=2))
    monkeypatch.setattr(container, "rate_limits", limits)
    answers = [browser.web.get("/sign-in/provider").status_code for _ in range(3)]
    assert answers == [303, 303, 429]


def test_roles_are_bundles_of_scopes() -> None:
    from pt2hub.domain.people import ROLE_SCOPES
    from pt2hub.domain.tokens import DEFAULT_SCOPES

    assert set(ROLE_SCOPES) == set(Role)
    assert ROLE_SCOPES[Role.MAINTAINER] == DEFAULT_SCOPES
    assert ROLE_SCOPES[Role.ADMIN] == {Scope.ADMIN}
