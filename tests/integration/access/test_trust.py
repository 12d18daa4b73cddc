"""Trusted publishing: ID tokens of a provider that runs here, over HTTP, are exchanged for tokens."""

from __future__ import annotations

import base64
import hmac
import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from joserfc.jwk import ECKey, RSAKey

from pt2hub.domain.audit import AuditFilter
from pt2hub.domain.tokens import Actor, Scope
from pt2hub.errors import InvalidInput, NotFound, TokenExpired
from support.oidc_provider import AUDIENCE

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.domain.trust import TrustRule
    from support.oidc_provider import Provider
    from support.registry import Registry

ADA = Actor("ada", admin=True)


def trusted(registry: Registry, provider: Provider, **changes: Any) -> TrustRule:
    """A rule for releases of one repository."""
    rule = {
        "issuer": provider.issuer,
        "audience": AUDIENCE,
        "claims": {"repository": "acme/vision", "ref": "refs/heads/*"},
        "scopes": [Scope.PUBLISH, Scope.BUILD],
        "patterns": ["vision/*"],
        "by": ADA,
    }
    return registry.services.trust.add("vision-ci", **{**rule, **changes})


def exchange(web: FlaskClient, token: str) -> tuple[int, dict[str, Any]]:
    answer = web.post("/api/v1/oidc/token", json={"id_token": token})
    assert token not in answer.get_data(as_text=True), "an ID token is not repeated"
    return answer.status_code, answer.get_json()


def test_a_job_gets_a_short_lived_token_for_what_its_rule_allows(
    registry: Registry, web: FlaskClient, provider: Provider
) -> None:
    rule = trusted(registry, provider)
    status, made = exchange(web, provider.token())
    assert status == 201
    assert made["name"] == "vision-ci:repo:acme/vision:ref:refs/heads/main"
    assert (made["scopes"], made["patterns"], made["admin"]) == (["build", "publish"], ["vision/*"], False)
    actor = registry.services.access.verify(made["token"])
    assert actor.may(Scope.PUBLISH, "vision/resnet18")
    assert not actor.may(Scope.PUBLISH, "nlp/bert")
    assert not actor.may(Scope.PROMOTE, "vision/resnet18")
    page = registry.services.audit_log.entries(AuditFilter())
    created, added = page.entries
    assert (str(created.action), created.principal.kind) == ("token.create", "oidc")
    assert created.principal.name == f"repo:acme/vision:ref:refs/heads/main at {provider.issuer}"
    assert created.request
    assert (str(added.action), added.principal.name, added.change["id"]) == ("trust.add", "ada", rule.id)
    registry.sql("UPDATE api_tokens SET expires_at = expires_at - interval '15 minutes'")
    with pytest.raises(TokenExpired):
        registry.services.access.verify(made["token"])


def test_a_short_lived_token_has_no_successor(
    registry: Registry, web: FlaskClient, provider: Provider
) -> None:
    trusted(registry, provider)
    _, made = exchange(web, provider.token())
    own = registry.services.access.verify(made["token"]).id
    admin = registry.services.access.create_token("root", admin=True)
    for token in (made["token"], admin):
        answer = web.post(
            f"/api/v1/tokens/{own}/rotate", json={}, headers={"Authorization": f"Bearer {token}"}
        )
        assert (answer.status_code, answer.get_json()["code"]) == (403, "forbidden")
        assert "pt2hub login --ci" in answer.get_json()["hint"]
    assert registry.sql("SELECT count(*) FROM api_tokens") == [(2,)]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another repository": ({"repository": "acme/other"}, "no_grant"),
    "a fork": ({"repository": "mallory/vision"}, "no_grant"),
    "a longer name": ({"repository": "acme/vision-evil"}, "no_grant"),
    "a tag": ({"ref": "refs/tags/v1"}, "no_grant"),
    "without the claim": ({"repository": None}, "no_grant"),
    "a number for text": ({"repository": 1}, "no_grant"),
    "true": ({"repository": True}, "no_grant"),
    "an object": ({"repository": {"acme/vision": 1}}, "no_grant"),
    "another server": ({"aud": "https://pypi.example"}, "id_token_wrong_audience"),
    "no audience": ({"aud": None}, "id_token_wrong_audience"),
    "a part of the audience": ({"aud": "https://pt2hub.exampl"}, "id_token_wrong_audience"),
    "expired": ({"exp": int(time.time()) - 3600}, "id_token_expired"),
    "no expiry": ({"exp": None}, "id_token_expired"),
    "an expiry in words": ({"exp": "never"}, "id_token_expired"),
    "not yet": ({"nbf": int(time.time()) + 36_000}, "id_token_expired"),
    "a strange issuer": ({"iss": "https://issuer.example"}, "id_token_wrong_issuer"),
    "no issuer": ({"iss": None}, "id_token_wrong_issuer"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_no_rule_covers_is_refused_with_its_own_code(
    registry: Registry, web: FlaskClient, provider: Provider, case: str
) -> None:
    trusted(registry, provider)
    claims, code = REFUSED[case]
    status, answer = exchange(web, provider.token(**claims))
    assert (status, answer["code"]) == (403 if code == "no_grant" else 401, code)
    assert registry.sql("SELECT count(*) FROM api_tokens") == [(0,)]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_only_the_issuers_public_keys_sign(registry: Registry, web: FlaskClient, provider: Provider) -> None:
    trusted(registry, provider)
    foreign = ECKey.generate_key("P-256", {"kid": "x"})
    forged = {
        "another key of that name": provider.token(key=RSAKey.generate_key(2048, {"kid": "one"})),
        "a key that is not published": provider.token(key=foreign, header={"alg": "ES256"}),
        "a cut signature": provider.token()[:-8],
    }
    head, body, signature = provider.token().split(".")
    payload = provider.token(ref="refs/heads/x").split(".")[1]
    forged["another payload"] = f"{head}.{payload}.{signature}"
    forged["no signature"] = f"{_encode(json.dumps({'alg': 'none'}).encode())}.{body}."
    # The public key as a shared secret is a known confusion.
    top = _encode(json.dumps({"alg": "HS256", "kid": "one"}).encode())
    mac = hmac.digest(provider.keys[0].as_pem(private=False), f"{top}.{body}".encode(), "sha256")
    forged["a shared secret"] = f"{top}.{body}.{_encode(mac)}"
    for case, token in forged.items():
        status, answer = exchange(web, token)
        assert (status, answer["code"]) == (401, "id_token_signature"), case
    for malformed in ("x", "a.b.c", "...", "pt2_whatever", "e30.e30.e30"):
        refused = web.post("/api/v1/oidc/token", json={"id_token": malformed})
        assert refused.status_code == 401
        assert refused.get_json()["code"] in {"id_token_rejected", "id_token_wrong_issuer"}
    assert web.post("/api/v1/oidc/token", json={"id_token": "x" * 20_000}).status_code == 422
    assert web.post("/api/v1/oidc/token", data=b"{").status_code in {400, 422}
    assert registry.sql("SELECT count(*) FROM api_tokens") == [(0,)]


def test_keys_are_kept_and_asked_for_again_when_they_change(
    registry: Registry, web: FlaskClient, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted(registry, provider)
    for _ in range(5):
        assert exchange(web, provider.token())[0] == 201
    assert provider.asked == 2
    provider.keys.append(RSAKey.generate_key(2048, {"kid": "two"}))
    assert exchange(web, provider.token())[1]["code"] == "id_token_signature", "just asked"
    assert provider.asked == 2, "unknown keys do not make us ask each time"
    monkeypatch.setattr("pt2hub.server.services.access.issuers._REFRESHED_AFTER_S", 0.0)
    assert exchange(web, provider.token())[0] == 201
    assert provider.asked == 4


def test_an_issuer_that_is_away_or_calls_itself_otherwise(
    registry: Registry, web: FlaskClient, provider: Provider
) -> None:
    trusted(registry, provider)
    token = provider.token()
    provider.named = "https://issuer.example"
    status, answer = exchange(web, token)
    assert (status, answer["code"]) == (503, "issuer_unavailable")
    provider.close()
    assert exchange(web, token)[1]["code"] == "issuer_unavailable"


def test_the_first_rule_that_applies_decides_and_groups_are_lists(
    registry: Registry, web: FlaskClient, provider: Provider
) -> None:
    release = {"groups": "ml-release"}
    trusted(registry, provider, claims=release, scopes=[Scope.PROMOTE], patterns=["*"])
    trusted(registry, provider)
    assert exchange(web, provider.token(groups=["ml", "ml-release"]))[1]["scopes"] == ["promote"]
    assert exchange(web, provider.token(groups=["ml", ["ml-release"]]))[1]["scopes"] == ["build", "publish"]
    first, second = registry.services.trust.rules()
    registry.services.trust.remove(second.id, by=ADA)
    status, answer = exchange(web, provider.token(groups=["interns"]))
    assert (status, answer["code"]) == (403, "no_grant"), "a group that maps to nothing"
    assert answer["details"][0]["path"] == "groups"
    registry.services.trust.remove(first.id, by=ADA)
    assert exchange(web, provider.token())[1]["code"] == "id_token_wrong_issuer"
    with pytest.raises(NotFound):
        registry.services.trust.remove(first.id, by=ADA)


GITHUB = "https://token.actions.githubusercontent.com"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"claims": {}}, "claims"),
        ({"claims": {"sub": "*"}}, "claims"),
        ({"claims": {"ref": "**"}}, "claims"),
        ({"issuer": GITHUB, "claims": {"ref": "refs/heads/main"}}, "claims"),
        ({"issuer": GITHUB, "claims": {"repository": "*/vision"}}, "claims"),
        ({"issuer": GITHUB, "claims": {"sub": "repo:*"}}, "claims"),
        ({"issuer": f"{GITHUB}/", "claims": {"sub": "repo:*"}}, "claims"),
        ({"issuer": "https://gitlab.com", "claims": {"ref": "main"}}, "claims"),
        ({"issuer": "http://issuer.example"}, "issuer"),
        ({"issuer": "ftp://issuer.example"}, "issuer"),
        ({"issuer": "https://issuer.example?x"}, "issuer"),
        ({"issuer": ""}, "issuer"),
        ({"audience": ""}, "audience"),
        ({"scopes": []}, "scopes"),
        ({"patterns": []}, "patterns"),
        ({"patterns": ["vision"]}, "patterns"),
        ({"lasting": timedelta(days=2)}, "lasting"),
        ({"lasting": timedelta(0)}, "lasting"),
    ],
)
def test_rules_that_let_in_strangers_or_say_nothing_are_refused(
    registry: Registry, provider: Provider, changes: dict[str, Any], where: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        trusted(registry, provider, **changes)
    assert caught.value.where == where
    assert registry.services.trust.rules() == ()


def test_a_rule_for_github_names_whose_workflow_it_is(registry: Registry, provider: Provider) -> None:
    claims = {"repository": "acme/*", "ref": "refs/heads/main"}
    rule = trusted(registry, provider, issuer=GITHUB, claims=claims)
    assert rule.mismatches({"repository": "acme/vision", "ref": "refs/heads/main"}) == []
    assert rule.mismatches({"repository": "acme/vision", "ref": "refs/heads/dev"}) == ["ref"]
    odd = trusted(registry, provider, claims={"sub": "a[b]?c*"})
    assert odd.mismatches({"sub": "a[b]?cd"}) == []
    assert odd.mismatches({"sub": "abxcd"}) == ["sub"]
