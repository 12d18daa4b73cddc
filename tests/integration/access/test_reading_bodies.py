"""In the mode `team`, a model that a body names does not exist unless it may be read: not in any part of the answer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.reading import ReadMode
from pt2hub.domain.tokens import Actor, Scope
from pt2hub.server.api import waits
from pt2hub.server.api.app import create_app
from pt2hub.server.api.permissions import RULES, About
from pt2hub.server.pages.installation import install
from support.registry import a_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask.testing import FlaskClient

    from pt2hub.server.config import ServerConfig
    from support.registry import Registry

SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
OWN, OTHER, UNHEARD = "vision/resnet18", "nlp/bert", "nlp/bart"
"""A token's own model, another team's, and a name that was never used, as long as that one: errors cut what is long."""
DIGEST = "sha256:" + "f" * 64
VALUE = {"key": "a", "metric": "accuracy", "value": 0.7, "unit": "1"}
MEASURED = VALUE | {"environment": {"cpu_model": "EPYC", "cores": 2, "torch": "2.13.0"}}
EVALUATED = VALUE | {"data_set": DIGEST, "count": 9}
HOST = {"os": "linux", "machine": "x86_64", "cpu_flags": []}
SELECTORS = ("@1", "@2", "@7", "@prod", "@sha256:ffffff", f"@{DIGEST}", "")
"""Of the other team's model: a version, a deleted one, an unused number, an alias, digests, the newest version."""


def _post(**document: Any) -> dict[str, Any]:
    return {"method": "POST", "json": document}


def _form(model: str, _: str) -> dict[str, Any]:
    return {"method": "POST", "data": {"spec": json.dumps(a_spec(model=model))}}


BODIES: dict[str, tuple[str, Callable[[str, str], dict[str, Any]]]] = {
    "artifacts.check": ("/api/v1/resolve", lambda model, at: _post(reference=model + at, host=HOST)),
    "measuring.measure": ("/api/v1/measure", lambda model, at: _post(reference=model + at)),
    "reports.evaluate": (
        "/api/v1/evaluations",
        lambda model, at: _post(evaluations=[EVALUATED | {"version": model + at}]),
    ),
    "reports.report": (
        "/api/v1/measurements",
        lambda model, at: _post(measurements=[MEASURED | {"artifact": model + at}]),
    ),
    "retention.set_retention": (
        "/api/v1/retention",
        lambda model, _: {"method": "PUT", "json": {"scope": model, "last": 9}},
    ),
    "versions.preview": ("/api/v1/versions/preview", lambda model, _: _post(**a_spec(model=model))),
    "versions.submit": ("/api/v1/versions", lambda model, _: _post(**a_spec(model=model))),
    "pages.check_spec": ("/publish/check", _form),
    "pages.publish": ("/publish", _form),
}
"""Requests about the model in their body, at one of its versions where they name one."""


@pytest.fixture
def web(registry: Registry, config: ServerConfig) -> Iterator[FlaskClient]:
    """The server in the mode `team`, with an artifact of each of two teams."""
    services = registry.services
    for model in (OWN, OTHER):
        registry.published(registry.submit(model=model))
        services.aliases.move(model, "prod", 1, expected=None, by=Actor("test"), reason="first")
    (build,) = registry.submit(model=OTHER, source={"factory": "torchvision.models:resnet50"}).builds
    services.builds.cancel(build.id, Actor("test"))
    services.deletion.version(OTHER, 2, by=Actor("ada", admin=True), reason="a secret reason")
    app = create_app(services, replace(config, read=ReadMode.TEAM))
    install(app)
    yield app.test_client()
    waits.stop(app)


def bearer(registry: Registry, pattern: str) -> dict[str, str]:
    token = registry.services.access.create_token("ci", admin=True, patterns=[pattern])
    return {"Authorization": f"Bearer {token}"}


def test_each_route_about_a_body_is_requested_below() -> None:
    assert set(BODIES) == {name for name, rule in RULES.items() if rule.about is About.BODY}


def test_another_teams_model_in_a_body_does_not_exist(registry: Registry, web: FlaskClient) -> None:
    headers = bearer(registry, "vision/*")
    web.post("/sign-in", data={"token": headers["Authorization"].split()[1]}, headers=SAME_SITE)
    for endpoint, (url, request) in BODIES.items():
        sent = SAME_SITE if endpoint.startswith("pages.") else headers
        found: dict[str, list[tuple[int, str]]] = {OTHER: [], UNHEARD: []}
        for model, seen in found.items():
            for selector in SELECTORS:
                answer = web.open(url, headers=sent, **request(model, selector))
                text = answer.get_data(as_text=True)
                assert "secret reason" not in text
                hidden = text.replace(model, "<given>").replace(model.partition("/")[2], "<given>")
                seen.append((answer.status_code, hidden))
        assert found[OTHER] == found[UNHEARD], endpoint
        assert "<given> not found" in str(found[OTHER]), endpoint


def test_a_baseline_is_of_a_model_that_may_be_read(registry: Registry, web: FlaskClient) -> None:
    secret, unheard = "vision/secret", "vision/unheard"
    registry.published(registry.submit(model=secret))

    def answer(baseline: str, pattern: str) -> tuple[int, str]:
        order = {"reference": f"{OWN}@1", "baseline": f"{baseline}@1"}
        found = web.post("/api/v1/measure", json=order, headers=bearer(registry, pattern))
        return found.status_code, found.get_data(as_text=True).replace(baseline, "<given>")

    hidden = answer(secret, OWN)
    assert hidden == answer(unheard, OWN)
    assert (hidden[0], "Model <given> not found" in hidden[1]) == (404, True)
    assert registry.sql("SELECT count(*) FROM builds WHERE kind <> 'build'") == [(0,)]
    assert "Model <given> not found" not in answer(secret, "vision/*")[1]


def test_what_a_token_may_read_but_not_change_is_forbidden_and_not_missing(
    registry: Registry, web: FlaskClient
) -> None:
    token = registry.services.access.create_token("ci", scopes=[Scope.READ], patterns=["vision/*"])
    refused = web.post(
        "/api/v1/measure", json={"reference": f"{OWN}@1"}, headers={"Authorization": f"Bearer {token}"}
    )
    assert refused.status_code == 403
