"""Who may do what: the rule of each route, of the API and of the pages, against real requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.people import Role
from pt2hub.domain.tokens import Actor, Scope
from pt2hub.server.api.permissions import RULES, About
from support.access import READING_POSTS, Case, changeable, send
from support.registry import ENVIRONMENT, Registry, a_spec

if TYPE_CHECKING:
    from flask.testing import FlaskClient

MODEL = "vision/resnet18"
ROLE = {"group": "vision-team", "role": "publisher", "models": "vision/*"}
CHANGING = {name: rule for name, rule in RULES.items() if rule.scope not in {None, Scope.READ}}
"""What reads is in `test_reading.py`."""


@pytest.fixture
def cases(registry: Registry) -> dict[str, Case]:
    """A request to each route that requires a scope, about a version with an artifact."""
    version = registry.submit()
    digest = registry.published(version)
    build, model = version.builds[0].id, "/api/v1/models/vision/resnet18"
    move = {"number": 1, "expected": None, "reason": "first"}
    measured = {
        "key": "a",
        "artifact": digest,
        "metric": "accuracy",
        "value": 0.7,
        "unit": "1",
        "environment": {"cpu_model": "EPYC", "cores": 2, "torch": ENVIRONMENT.torch},
    }
    evaluated = {
        "key": "a",
        "version": f"{MODEL}@1",
        "metric": "accuracy",
        "value": 0.7,
        "unit": "1",
        "data_set": digest_bytes(b"data"),
        "count": 10,
    }
    hook = "/api/v1/webhooks/1"
    role = registry.services.roles.assign("others", Role.READER, "vision/*", by=Actor("root", admin=True))
    upload = "/api/v1/uploads/00000000-0000-0000-0000-000000000000"
    form = {"alias": "prod", "number": "1", "expected": "", "reason": "first"}
    return {
        "aliases.move": Case("PUT", f"{model}/aliases/prod", move),
        "aliases.preview": Case("GET", f"{model}/aliases/prod/preview?number=1"),
        "aliases.remove": Case("DELETE", f"{model}/aliases/prod?expected=1&reason=x"),
        "audit.entries": Case("GET", "/api/v1/audit"),
        "blobs.upload": Case("PUT", f"/api/v1/blobs/{digest}"),
        "labels.label_model": Case("PATCH", f"{model}/labels", {"set": {"owner": "search"}}),
        "labels.label_version": Case("PATCH", f"{model}/versions/1/labels", {"set": {"owner": "search"}}),
        "files.put": Case("PUT", f"{model}/versions/1/files/README.md", {"digest": digest}),
        "files.remove": Case("DELETE", f"{model}/versions/1/files/README.md"),
        "lineage.change": Case("PATCH", f"{model}/versions/1/lineage", {"add": ["other:hf:net@v1"]}),
        "measuring.measure": Case("POST", "/api/v1/measure", {"reference": f"{MODEL}@1"}),
        "models.change": Case("PATCH", model, {"description": "A net."}),
        "policies.put": Case("PUT", f"{model}/policy", {"document": {}, "revision": 0}),
        "reports.evaluate": Case("POST", "/api/v1/evaluations", {"evaluations": [evaluated]}),
        "reports.report": Case("POST", "/api/v1/measurements", {"measurements": [measured]}),
        "roles.assign": Case("POST", "/api/v1/roles", ROLE),
        "roles.remove": Case("DELETE", f"/api/v1/roles/{role.id}"),
        "retention.delete_blob": Case("DELETE", f"/api/v1/blobs/{digest}"),
        "retention.delete_build": Case("DELETE", f"/api/v1/builds/{build}?reason=x"),
        "retention.delete_model": Case("DELETE", f"{model}?reason=x"),
        "retention.delete_version": Case("DELETE", f"{model}/versions/1?reason=x"),
        "retention.preview_retention": Case("GET", f"/api/v1/retention/preview?scope={MODEL}"),
        "retention.remove_retention": Case("DELETE", f"/api/v1/retention?scope={MODEL}"),
        "retention.set_retention": Case("PUT", "/api/v1/retention", {"scope": MODEL, "last": 1}),
        "retention.show_retention": Case("GET", f"/api/v1/retention?scope={MODEL}"),
        "tokens.create": Case(
            "POST", "/api/v1/tokens", {"name": "x", "scopes": ["read"], "models": ["vision/*"]}
        ),
        "uploads.begin": Case("POST", "/api/v1/uploads", {"digest": digest, "size": 5}),
        "uploads.cancel": Case("DELETE", upload),
        "uploads.complete": Case("POST", f"{upload}/complete", {"parts": []}),
        "uploads.sign": Case("POST", f"{upload}/parts", {"parts": []}),
        "uploads.upload": Case("GET", upload),
        "versions.add_target": Case(
            "POST", f"{model}/versions/1/targets", {"target": "torch2.13-cpu-x86_64_v3"}
        ),
        "versions.cancel": Case("POST", f"/api/v1/builds/{build}/cancel"),
        "versions.preview": Case("POST", "/api/v1/versions/preview", a_spec()),
        "versions.retry": Case("POST", f"/api/v1/builds/{build}/retry"),
        "versions.submit": Case("POST", "/api/v1/versions", a_spec()),
        "webhooks.change": Case("PATCH", hook, {"enabled": False}),
        "webhooks.create": Case(
            "POST", "/api/v1/webhooks", {"address": "https://192.0.32.10/x", "models": "vision/*"}
        ),
        "webhooks.delete": Case("DELETE", hook),
        "webhooks.deliveries": Case("GET", f"{hook}/deliveries"),
        "webhooks.redeliver": Case("POST", f"{hook}/deliveries/1/redeliver"),
        "webhooks.rotate": Case("POST", f"{hook}/rotate", {}),
        "webhooks.test": Case("POST", f"{hook}/test"),
        "webhooks.webhooks": Case("GET", "/api/v1/webhooks"),
        "pages.add_derivation": Case(
            "POST", "/models/vision/resnet18/versions/1/lineage", {"relation": "other", "parent": "hf:net@v1"}
        ),
        "pages.assign_role": Case("POST", "/teams", ROLE),
        "pages.audit": Case("GET", "/audit"),
        "pages.retention": Case("GET", f"/retention?scope={MODEL}"),
        "pages.remove_role": Case("POST", f"/teams/roles/{role.id}/remove", {}),
        "versions.unyank": Case("DELETE", f"{model}/versions/1/yank?reason=x"),
        "versions.yank": Case("PUT", f"{model}/versions/1/yank", {"reason": "x"}),
        "pages.cancel_build": Case("POST", f"/builds/{build}/cancel", {}),
        "pages.check_spec": Case("POST", "/publish/check", {"spec": f"model: {MODEL}"}),
        "pages.describe": Case("POST", "/models/vision/resnet18/description", {"description": "A net."}),
        "pages.measure": Case("POST", f"/artifacts/{digest}/measure", {}),
        "pages.move_alias": Case("POST", "/models/vision/resnet18/aliases", form),
        "pages.publish": Case("POST", "/publish", {"spec": f"model: {MODEL}"}),
        "pages.remove_alias": Case("POST", "/models/vision/resnet18/aliases/prod/remove", form),
        "pages.retry_build": Case("POST", f"/builds/{build}/retry", {}),
        "pages.unyank_version": Case("POST", "/models/vision/resnet18/versions/1/unyank", {"reason": "x"}),
        "pages.yank_version": Case("POST", "/models/vision/resnet18/versions/1/yank", {"reason": "x"}),
    }


def test_each_route_has_a_rule_and_each_rule_a_route(web: FlaskClient) -> None:
    routes = {rule.endpoint: rule.methods or set() for rule in web.application.url_map.iter_rules()}
    assert set(routes) == set(RULES)
    for endpoint, methods in routes.items():
        changes = bool(methods & {"POST", "PUT", "PATCH", "DELETE"}) and endpoint not in READING_POSTS
        rule = RULES[endpoint]
        assert not changes or rule.scope is not None or rule.signed_in, endpoint


def test_each_route_that_changes_something_is_requested_below(cases: dict[str, Case]) -> None:
    assert set(cases) == set(CHANGING)


@pytest.mark.parametrize("endpoint", sorted(CHANGING))
def test_a_route_takes_its_scope_for_its_model_and_nothing_less(
    registry: Registry, web: FlaskClient, cases: dict[str, Case], endpoint: str
) -> None:
    rule, case, access = RULES[endpoint], cases[endpoint], registry.services.access
    assert rule.scope is not None
    before = changeable(registry)
    asked_to_sign_in = 303 if endpoint in {"pages.audit", "pages.retention"} else 401
    assert send(web, endpoint, case, None).status_code == asked_to_sign_in
    others = set(Scope) - {rule.scope, Scope.ADMIN}
    refused = send(web, endpoint, case, access.create_token("others", scopes=others))
    assert refused.status_code == 403, refused.get_data(as_text=True)
    assert "others" in refused.get_data(as_text=True)
    if rule.about is not About.NOTHING:
        for patterns in (["nlp/*"], ["vision/resnet1"], ["vision/resnet18-large"], ["*/resnet50"]):
            token = access.create_token("elsewhere", admin=True, patterns=patterns)
            refused = send(web, endpoint, case, token)
            text = refused.get_data(as_text=True)
            assert "Permission denied" in text, text
            assert refused.status_code == 403 or endpoint == "pages.check_spec"  # a fragment beside a form
    assert changeable(registry) == before
    token = access.create_token("allowed", scopes=[rule.scope], patterns=["vision/*"])
    allowed = send(web, endpoint, case, token)
    assert allowed.status_code not in {401, 403}
    assert "Permission denied" not in allowed.get_data(as_text=True)


def test_a_token_of_one_team_cannot_touch_another_teams_alias(registry: Registry, web: FlaskClient) -> None:
    registry.published()
    vision = registry.services.access.create_token("vision", patterns=["vision/*"])
    other = registry.services.access.create_token("nlp", patterns=["nlp/*"])
    url, move = "/api/v1/models/vision/resnet18/aliases/prod", {"number": 1, "expected": None, "reason": "x"}
    assert web.put(url, json=move, headers={"Authorization": f"Bearer {vision}"}).status_code == 200
    refused = web.delete(f"{url}?expected=1&reason=x", headers={"Authorization": f"Bearer {other}"})
    assert refused.get_json()["code"] == "forbidden"
    assert "nlp/*" in refused.get_json()["hint"]
    assert web.get(url).get_json()["number"] == 1


@pytest.mark.parametrize("scope", list(Scope))
def test_whoever_has_a_token_may_ask_what_it_allows(
    registry: Registry, web: FlaskClient, scope: Scope
) -> None:
    token = registry.services.access.create_token("ci", scopes=[scope], patterns=["vision/*"])
    case = Case("GET", "/api/v1/whoami")
    assert send(web, "meta.whoami", case, None).status_code == 401
    answer = send(web, "meta.whoami", case, token).get_json()
    assert (answer["name"], answer["patterns"]) == ("ci", ["vision/*"])
    assert scope in answer["scopes"]


@pytest.mark.parametrize(
    ("change", "code"),
    [("revoked_at = now()", "token_revoked"), ("expires_at = now()", "token_expired")],
)
def test_a_token_that_ended_says_so_and_ends_its_sessions(
    registry: Registry, web: FlaskClient, change: str, code: str
) -> None:
    token = registry.services.access.create_token("ci", admin=True)
    registry.submit()
    page = Case("POST", "/models/vision/resnet18/description", {"description": "x"})
    assert send(web, "pages.describe", page, token).status_code == 303
    registry.sql(f"UPDATE api_tokens SET {change}")
    answer = web.get("/api/v1/whoami", headers={"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.get_json()["code"]) == (401, code)
    assert token not in answer.get_data(as_text=True)
    assert send(web, "pages.describe", page, None).status_code == 401
