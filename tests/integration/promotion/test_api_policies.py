from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pt2hub import errors
from pt2hub.domain.codec import decode
from pt2hub.server.api.app import create_app
from pt2hub.wire.performance import PolicyView
from pt2hub.wire.problems import from_dict
from pt2hub.wire.responses import AliasView
from support.gated import latency, version

if TYPE_CHECKING:
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from pt2hub.server.config import ServerConfig
    from support.registry import Registry

MODEL = "/api/v1/models/vision/resnet18"
POLICY = f"{MODEL}/policy"
ALIAS = f"{MODEL}/aliases/prod"
CHECK = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
CHANGE = {"document": {"checks": [CHECK]}, "revision": 0}
MOVE = {"number": 2, "expected": 1, "reason": "release"}


@pytest.fixture
def api(registry: Registry, config: ServerConfig) -> FlaskClient:
    """A client of the API over the registry's services."""
    return create_app(registry.services, config).test_client()


def bearer(registry: Registry, name: str = "ci", *, admin: bool = False) -> dict[str, str]:
    return {"Authorization": f"Bearer {registry.services.access.create_token(name, admin=admin)}"}


def error_of(response: TestResponse, status: int) -> errors.Pt2hubError:
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.content_type == "application/problem+json"
    return from_dict(response.get_json(force=True))


def test_a_policy_is_read_by_all_and_changed_in_the_name_of_the_token(
    registry: Registry, api: FlaskClient
) -> None:
    registry.submit()
    assert decode(PolicyView, api.get(POLICY).get_json()).revision == 0
    assert isinstance(error_of(api.put(POLICY, json=CHANGE), 401), errors.Unauthorized)
    assert isinstance(error_of(api.put(POLICY, json=CHANGE, headers=bearer(registry)), 403), errors.Forbidden)
    headers = bearer(registry, "root", admin=True)
    made = decode(PolicyView, api.put(POLICY, json=CHANGE, headers=headers).get_json())
    assert (made.revision, made.by, made.document["checks"][0]["max_worse"]) == (1, "root", 0.05)
    assert decode(PolicyView, api.get(POLICY).get_json()) == made
    again = {"document": made.document, "revision": 1}  # as it was read
    assert decode(PolicyView, api.put(POLICY, json=again, headers=headers).get_json()) == made
    other = {"document": {}, "revision": 1}
    assert api.put(POLICY, json=other, headers=headers).get_json()["revision"] == 2
    lost = error_of(api.put(POLICY, json=CHANGE, headers=headers), 409)
    assert isinstance(lost, errors.PolicyChanged)
    assert lost.context["winner"]["revision"] == 2


@pytest.mark.parametrize(
    ("body", "cls", "path"),
    [
        ({"document": {}}, errors.InvalidInput, "revision"),
        ({"document": {}, "revision": -1}, errors.InvalidInput, "revision"),
        ({"document": {}, "revision": 2**31 - 1}, errors.InvalidInput, "revision"),
        ({"document": [], "revision": 0}, errors.InvalidInput, "document"),
        ({"document": {"checks": [{**CHECK, "max_worse": "5 %"}]}, "revision": 0}, errors.InvalidInput, "checks[0].max_worse"),
        ({"document": {"checks": [{**CHECK, "metric": "latencyp50"}]}, "revision": 0}, errors.UnknownMetric, "checks[0].metric"),
        ({"document": {"checks": [{**CHECK, "target": "\u202e"}]}, "revision": 0}, errors.UnknownTarget, "checks[0].target"),
    ],
)  # fmt: skip
def test_a_wrong_change_of_a_policy_is_a_422_with_its_place(
    registry: Registry, api: FlaskClient, body: dict[str, Any], cls: type[errors.Pt2hubError], path: str
) -> None:
    registry.submit()
    error = error_of(api.put(POLICY, json=body, headers=bearer(registry, admin=True)), 422)
    assert (type(error), [item.path for item in error.details]) == (cls, [path])
    assert error.hint


def test_a_move_that_a_gate_refuses_is_a_409_and_an_admin_may_force_it(
    registry: Registry, api: FlaskClient
) -> None:
    version(registry, latency(10.0))
    version(registry, latency(13.0))
    ci, root = bearer(registry), bearer(registry, "root", admin=True)
    api.put(POLICY, json=CHANGE, headers=root)
    made = api.put(ALIAS, json=MOVE | {"number": 1, "expected": None}, headers=ci).get_json()
    assert "nothing to compare with" in made["notes"][0]
    error = error_of(api.put(ALIAS, json=MOVE, headers=root), 409)
    assert isinstance(error, errors.PromotionCheckFailed)
    assert error.context["refused"][0]["comparison"]["outcome"] == "worse"
    denied = error_of(api.put(ALIAS, json=MOVE | {"force": True}, headers=ci), 403)
    assert isinstance(denied, errors.Forbidden)
    assert isinstance(
        error_of(api.put(ALIAS, json=MOVE | {"force": 1}, headers=root), 422), errors.InvalidInput
    )
    forced = decode(AliasView, api.put(ALIAS, json=MOVE | {"force": True}, headers=root).get_json())
    assert (forced.number, forced.last.by) == (2, "root")
    assert forced.last.forced == {"revision": 1, "count": 1, "refused": error.context["refused"]}
    assert decode(AliasView, api.get(ALIAS).get_json()).history == forced.history


def test_policies_and_forcing_are_described(api: FlaskClient) -> None:
    paths = api.get("/api/v1/openapi.json").get_json()["paths"]
    operation = paths["/api/v1/models/{team}/{name}/policy"]["put"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
    check = schema["document"]["properties"]["checks"]["items"]["properties"]
    assert check["max_worse"]["maximum"] == 10
    assert operation["security"] == [{"token": []}]
    move = paths["/api/v1/models/{team}/{name}/aliases/{alias}"]["put"]
    assert "force" in move["requestBody"]["content"]["application/json"]["schema"]["properties"]
