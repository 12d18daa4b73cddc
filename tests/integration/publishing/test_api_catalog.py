from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from pt2hub import errors
from pt2hub.domain.codec import decode
from pt2hub.server.api.app import create_app
from pt2hub.wire.problems import from_dict
from pt2hub.wire.resolution import ResolvedReference
from pt2hub.wire.responses import (
    AliasList,
    AliasView,
    BuildPage,
    ModelPage,
    ModelView,
    VersionPage,
)
from support.registry import V3, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from pt2hub.server.config import ServerConfig
    from support.registry import Registry

MODEL = "vision/resnet18"
MODELS = "/api/v1/models"
ALIAS = f"{MODELS}/{MODEL}/aliases/prod"
MOVE = {"number": 1, "expected": None, "reason": "release"}


@pytest.fixture
def api(registry: Registry, config: ServerConfig) -> FlaskClient:
    """A client of the API over the registry's services."""
    return create_app(registry.services, config).test_client()


@pytest.fixture
def bearer(registry: Registry) -> dict[str, str]:
    """Headers of a token called `ci`."""
    return {"Authorization": f"Bearer {registry.services.access.create_token('ci')}"}


def error_of(response: TestResponse, status: int) -> errors.Pt2hubError:
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.content_type == "application/problem+json"
    return from_dict(response.get_json(force=True))


def test_models_versions_and_builds_are_read_page_by_page(registry: Registry, api: FlaskClient) -> None:
    registry.published(registry.submit(targets=[V4, V3]))
    registry.published(registry.submit(checks={"tolerance": 0.1}))
    registry.submit(model="audio/net")
    first = decode(ModelPage, api.get(f"{MODELS}?limit=1").get_json())
    assert ([item.name for item in first.models], first.next) == (["audio/net"], "audio/net")
    rest = decode(ModelPage, api.get(f"{MODELS}?limit=1&after={first.next}").get_json())
    assert ([item.name for item in rest.models], rest.next) == ([MODEL], None)
    found = decode(ModelPage, api.get(f"{MODELS}?search=RES").get_json())
    assert found.models == rest.models == (decode(ModelView, api.get(f"{MODELS}/{MODEL}").get_json()),)

    versions = decode(VersionPage, api.get(f"{MODELS}/{MODEL}/versions?limit=1").get_json())
    assert ([item.number for item in versions.versions], versions.next) == ([2], 2)
    older = decode(VersionPage, api.get(f"{MODELS}/{MODEL}/versions?limit=1&before=2").get_json())
    assert ([item.number for item in older.versions], older.next) == ([1], None)

    query = {"model": MODEL, "state": "succeeded", "target": V4, "limit": 1}
    builds = decode(BuildPage, api.get(f"/api/v1/builds?{urlencode(query)}").get_json())
    assert [item.number for item in builds.builds] == [2]
    query["after"] = builds.next or ""
    last = decode(BuildPage, api.get(f"/api/v1/builds?{urlencode(query)}").get_json())
    assert ([item.number for item in last.builds], last.next) == ([1], None)
    one = decode(BuildPage, api.get(f"/api/v1/builds?model={MODEL}&number=1").get_json())
    assert [item.target for item in one.builds] in ([V3, V4], [V4, V3])


def test_an_alias_is_moved_read_and_removed_in_the_name_of_the_token(
    registry: Registry, api: FlaskClient, bearer: dict[str, str]
) -> None:
    registry.published()
    moved = decode(AliasView, api.put(ALIAS, json=MOVE, headers=bearer).get_json())
    assert (moved.number, moved.last.by, moved.last.reason) == (1, "ci", "release")
    assert api.put(ALIAS, json=MOVE, headers=bearer).get_json()["last"]["sequence"] == 1
    listed = decode(AliasList, api.get(f"{MODELS}/{MODEL}/aliases").get_json())
    assert listed.aliases == (replace(moved, history=()),)
    resolved = decode(ResolvedReference, api.get(f"/api/v1/resolve?reference={MODEL}@prod").get_json())
    assert (resolved.number, resolved.alias) == (1, "prod")
    query = urlencode({"expected": 1, "reason": "no longer needed"})
    removed = decode(AliasView, api.delete(f"{ALIAS}?{query}", headers=bearer).get_json())
    assert (removed.number, removed.last.reason) == (None, "no longer needed")
    assert api.delete(f"{ALIAS}?{query}", headers=bearer).status_code == 200
    shown = decode(AliasView, api.get(ALIAS).get_json())
    assert shown.history == (removed.last, moved.last)


def test_a_move_that_lost_a_race_is_a_409_with_the_winner(
    registry: Registry, api: FlaskClient, bearer: dict[str, str]
) -> None:
    registry.published()
    registry.published(registry.submit(checks={"tolerance": 0.1}))
    api.put(ALIAS, json=MOVE, headers=bearer)
    error = error_of(api.put(ALIAS, json=MOVE | {"number": 2}, headers=bearer), 409)
    assert isinstance(error, errors.AliasMoved)
    assert (error.context["winner"]["number"], error.context["winner"]["by"]) == (1, "ci")
    error = error_of(api.delete(f"{ALIAS}?expected=2&reason=x", headers=bearer), 409)
    assert isinstance(error, errors.AliasMoved)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer pt2_x_y"}], ids=["none", "wrong"])
def test_aliases_move_only_with_a_token(
    registry: Registry, api: FlaskClient, headers: dict[str, str]
) -> None:
    registry.published()
    for response in (
        api.put(ALIAS, json=MOVE, headers=headers),
        api.delete(f"{ALIAS}?expected=1&reason=x", headers=headers),
    ):
        assert isinstance(error_of(response, 401), errors.Unauthorized)
    assert api.get(f"{MODELS}/{MODEL}/aliases").get_json() == {"aliases": []}


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"number": 1, "reason": "x"}, ["expected"]),  # it must be said, if only as null
        ({"number": "1", "expected": None, "reason": "x"}, ["number"]),
        ({"number": 0, "expected": 2**31, "reason": ""}, ["number", "expected", "reason"]),
        (MOVE | {"forced": True}, ["forced"]),
        (MOVE | {"force": 1}, ["force"]),
        (MOVE | {"reason": "x" * 501}, ["reason"]),
    ],
)
def test_a_move_with_wrong_fields_is_answered_with_each(
    api: FlaskClient, bearer: dict[str, str], body: dict[str, Any], paths: list[str]
) -> None:
    error = error_of(api.put(ALIAS, json=body, headers=bearer), 422)
    assert ([item.path for item in error.details], bool(error.hint)) == (paths, True)


@pytest.mark.parametrize(
    ("body", "where"),
    [(b"", "document"), (b"[1]", "document"), (b"{", "line 1"), (b'{"reason": "\\u0000"}', "reason")],
)
def test_a_move_that_cannot_be_read_is_refused(
    api: FlaskClient, bearer: dict[str, str], body: bytes, where: str
) -> None:
    response = api.put(ALIAS, data=body, content_type="application/json", headers=bearer)
    assert where in (error_of(response, 422).where or "")


def test_a_move_of_a_megabyte_is_refused(api: FlaskClient, bearer: dict[str, str]) -> None:
    response = api.put(ALIAS, data=b" " * (1 << 20), headers=bearer)
    assert isinstance(error_of(response, 413), errors.TooLarge)


def test_an_alias_that_is_a_number_is_refused(api: FlaskClient, bearer: dict[str, str]) -> None:
    error = error_of(api.put(f"{MODELS}/{MODEL}/aliases/3", json=MOVE, headers=bearer), 422)
    assert (error.where, "numbers are versions" in (error.hint or "")) == ("alias", True)


def test_a_version_without_an_artifact_is_a_409(
    registry: Registry, api: FlaskClient, bearer: dict[str, str]
) -> None:
    registry.submit()
    assert isinstance(error_of(api.put(ALIAS, json=MOVE, headers=bearer), 409), errors.NotReady)
    assert isinstance(error_of(api.get(f"/api/v1/resolve?reference={MODEL}@1"), 409), errors.NotReady)


def test_an_ambiguous_digest_is_a_409_that_lists_the_candidates(registry: Registry, api: FlaskClient) -> None:
    digest = registry.published(registry.submit(targets=[V4, V3]))
    twin = f"{digest[:-1]}{'0' if digest[-1] != '0' else '1'}"
    registry.sql(
        "INSERT INTO artifacts SELECT (jsonb_populate_record(a, jsonb_build_object("
        "'digest', %s::text, 'build_id', b.id))).* FROM artifacts a, builds b WHERE b.target = %s",
        twin,
        V3,
    )
    error = error_of(api.get(f"/api/v1/resolve?reference={MODEL}@{digest[:20]}"), 409)
    assert isinstance(error, errors.Ambiguous)
    assert {item["digest"] for item in error.context["candidates"]} == {digest, twin}


@pytest.mark.parametrize(
    "path",
    [
        f"{MODELS}/vision/none",
        f"{MODELS}/vision/none/versions",
        f"{MODELS}/vision/none/aliases",
        f"{MODELS}/vision/none/aliases/prod",
        "/api/v1/builds?model=vision/none",
    ],
)
def test_what_is_not_there_is_a_404_with_a_hint(api: FlaskClient, path: str) -> None:
    error = error_of(api.get(path), 404)
    assert (error.message, bool(error.hint)) == ("Model vision/none not found", True)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (f"{MODELS}?limit=0", "limit"),
        (f"{MODELS}?limit=1001", "limit"),
        (f"{MODELS}?limit=many", "limit"),
        (f"{MODELS}?after=nonsense", "after"),
        (f"{MODELS}?search=a%00", "search"),
        (f"{MODELS}/{MODEL}/versions?before=0", "before"),
        (f"{MODELS}/{MODEL}/versions?before=x", "before"),
        (f"{MODELS}/{MODEL}/versions?limit=1001", "limit"),
        ("/api/v1/builds?state=done", "state"),
        ("/api/v1/builds?number=x", "number"),
        ("/api/v1/builds?limit=0", "limit"),
    ],
)
def test_wrong_parameters_are_named(api: FlaskClient, path: str, where: str) -> None:
    error = error_of(api.get(path), 422)
    assert ([item.path for item in error.details], bool(error.hint)) == ([where], True)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/api/v1/builds?after=x", "after"),
        ("/api/v1/builds?target=tpu", "targets"),
        ("/api/v1/builds?number=1", "number"),
        ("/api/v1/builds?model=a%00b", "model"),
        (f"{MODELS}/vision/a%00b", "model"),
        (f"{MODELS}/vision/a%00b/aliases", "model"),
        (f"{MODELS}/{MODEL}/aliases/a%00b", "alias"),
    ],
)
def test_values_of_another_form_are_refused(
    registry: Registry, api: FlaskClient, path: str, where: str
) -> None:
    registry.submit()
    error = error_of(api.get(path), 422)
    assert (error.where, bool(error.hint)) == (where, True)


def test_a_move_needs_its_reason_and_where_the_alias_is(api: FlaskClient, bearer: dict[str, str]) -> None:
    error = error_of(api.delete(ALIAS, headers=bearer), 422)
    assert [item.path for item in error.details] == ["expected", "reason"]


def test_the_move_of_an_alias_is_described(api: FlaskClient) -> None:
    paths = api.get("/api/v1/openapi.json").get_json()["paths"]
    operation = paths["/api/v1/models/{team}/{name}/aliases/{alias}"]["put"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["number", "expected", "reason"]
    parameters = paths["/api/v1/builds"]["get"]["parameters"]
    assert {item["name"] for item in parameters} == {
        "model",
        "number",
        "state",
        "target",
        "kind",
        "after",
        "limit",
    }


def test_a_model_without_its_team_is_refused_with_the_models_of_that_name(
    api: FlaskClient, registry: Registry
) -> None:
    registry.submit()
    registry.submit(model="audio/resnet18", dtype="bfloat16")
    wrong = api.get("/api/v1/builds?model=resnet18")
    hint = "The team is missing: write team/resnet18."
    assert (wrong.status_code, wrong.get_json()["hint"]) == (
        422,
        f"{hint} Did you mean audio/resnet18 or vision/resnet18?",
    )
    assert api.get("/api/v1/builds?model=resnet18&number=1").get_json()["context"]["suggestions"]
    assert api.get("/api/v1/builds?model=nothing").get_json()["hint"] == hint.replace("resnet18", "nothing")
    assert "lowercase" in api.get("/api/v1/builds?model=Resnet18").get_json()["hint"]
