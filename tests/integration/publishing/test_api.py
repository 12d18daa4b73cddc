from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from openapi_spec_validator import validate

from pt2hub import errors
from pt2hub.domain.artifacts import Environment
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import digest_bytes
from pt2hub.server.api.app import create_app
from pt2hub.server.container import open_container
from pt2hub.wire.problems import from_dict
from pt2hub.wire.responses import BuildView, TargetView, VersionView
from support.packages import WEIGHTS
from support.registry import a_registration

if TYPE_CHECKING:
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container

TARGET = "torch2.13-cpu-x86_64_v3"
SPEC: dict[str, Any] = {
    "model": "vision/resnet18",
    "source": {"factory": "torchvision.models:resnet18"},
    "inputs": [{"name": "x", "shape": ["batch", 3, 224, 224], "generate": {"normal": {}}}],
    "dims": {"batch": {"min": 1, "max": 32, "example": 2}},
    "targets": [TARGET],
}


def add_worker(container: Container) -> None:
    environment = Environment("test cpu", "x86_64_v3", 2, 1 << 30, "2.13.0+cpu")
    container.workers.register(a_registration("w1", TARGET, environment=environment))


def error_of(response: TestResponse, status: int) -> errors.Pt2hubError:
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.content_type == "application/problem+json"
    return from_dict(response.get_json(force=True))


def test_a_spec_in_yaml_is_published_once_and_read_back(api: FlaskClient, bearer: dict[str, str]) -> None:
    headers = bearer | {"Content-Type": "application/yaml"}
    first = api.post("/api/v1/versions", data=yaml.safe_dump(SPEC), headers=headers)
    assert first.status_code == 201, first.get_data(as_text=True)
    version = decode(VersionView, first.get_json())
    assert (version.model, version.number, version.created) == ("vision/resnet18", 1, True)

    again = api.post("/api/v1/versions", json=SPEC, headers=bearer)
    assert again.status_code == 200
    assert decode(VersionView, again.get_json()).number == 1

    read = api.get("/api/v1/models/vision/resnet18/versions/1")
    assert decode(VersionView, read.get_json()).builds == version.builds

    build = decode(BuildView, api.get(f"/api/v1/builds/{version.builds[0].id}").get_json())
    assert (build.target, build.state) == (TARGET, "queued")
    assert build.wait
    assert api.get(f"/api/v1/builds/{build.id}/logs?after=3").get_json()["lines"] == []


def test_a_wrong_field_is_answered_with_its_path(api: FlaskClient, bearer: dict[str, str]) -> None:
    wrong = SPEC | {"inputs": [{"name": "x", "shape": ["batch", -3], "generate": {"normal": {}}}]}
    error = error_of(api.post("/api/v1/versions", json=wrong, headers=bearer), 422)
    assert isinstance(error, errors.InvalidInput)
    assert any(item.path.startswith("inputs[0].shape[1]") for item in error.details)


def test_a_syntax_error_is_answered_with_line_and_column(api: FlaskClient, bearer: dict[str, str]) -> None:
    response = api.post(
        "/api/v1/versions", data="model: a\ninputs: [", headers=bearer | {"Content-Type": "application/yaml"}
    )
    error = error_of(response, 422)
    assert error.context["line"] in {2, 3}
    assert "column" in (error.where or "")


def test_a_spec_of_two_megabytes_is_refused(api: FlaskClient, bearer: dict[str, str]) -> None:
    response = api.post("/api/v1/versions", data=b" " * (2 << 20), headers=bearer)
    assert isinstance(error_of(response, 413), errors.TooLarge)


def test_auto_without_a_live_worker_is_refused_with_its_code(
    api: FlaskClient, bearer: dict[str, str]
) -> None:
    response = api.post("/api/v1/versions", json=SPEC | {"targets": ["auto"]}, headers=bearer)
    error = error_of(response, 409)
    assert isinstance(error, errors.NoLiveWorker)
    assert (error.where, bool(error.hint)) == ("targets", True)


def test_an_unknown_target_is_refused_with_its_code_and_place(
    api: FlaskClient, bearer: dict[str, str]
) -> None:
    response = api.post("/api/v1/versions", json=SPEC | {"targets": [TARGET, "tpu"]}, headers=bearer)
    error = error_of(response, 422)
    assert isinstance(error, errors.UnknownTarget)
    assert (error.where, error.details[0].given) == ("targets[1]", '"tpu"')
    assert "x86_64_v4" in (error.details[0].allowed or "")


def test_auto_is_resolved_to_the_targets_that_live(
    api: FlaskClient, bearer: dict[str, str], container: Container
) -> None:
    add_worker(container)
    targets = api.get("/api/v1/targets").get_json()["targets"]
    (target,) = (decode(TargetView, item) for item in targets)
    assert (target.name, target.live_workers, target.slots) == (TARGET, 1, 1)
    response = api.post("/api/v1/versions", json=SPEC | {"targets": ["auto"]}, headers=bearer)
    assert [build["target"] for build in response.get_json()["builds"]] == [TARGET]


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer pt2_x_y", "Basic abc", "Bearer pt2_" + "a" * 52 + "_abcdef"]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/versions"),
        ("PUT", f"/api/v1/blobs/sha256:{'0' * 64}"),
        ("DELETE", "/api/v1/anything"),
    ],
)
def test_nothing_changes_without_a_token(
    api: FlaskClient, method: str, path: str, authorization: str | None
) -> None:
    headers = {"Authorization": authorization} if authorization is not None else {}
    response = api.open(path, method=method, headers=headers, data=b"{}")
    assert isinstance(error_of(response, 401), errors.Unauthorized)
    assert response.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/models/vision/none/versions/1",
        "/api/v1/builds/none",
        "/api/v1/builds/none/logs",
        "/api/v1/resolve?reference=vision/none@3",
        f"/api/v1/artifacts/sha256:{'0' * 64}",
        f"/api/v1/models/vision/none/manifests/sha256:{'0' * 64}",
        "/api/v1/nothing/here",
    ],
)
def test_what_is_not_there_is_a_404_with_our_code(api: FlaskClient, path: str) -> None:
    assert isinstance(error_of(api.get(path), 404), errors.NotFound)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/api/v1/models/vision/resnet18/versions/x", "number"),
        ("/api/v1/models/vision/resnet18/versions/0", "number"),
        ("/api/v1/artifacts/sha256:0", "digest"),
        ("/api/v1/builds/x/logs?after=-1", "after"),
        ("/api/v1/resolve", "reference"),
        ("/api/v1/builds/a%00b", "id"),
        ("/api/v1/builds/a%00b/logs", "id"),
        (f"/api/v1/blobs/sha256:{'0' * 64}%0A", "digest"),
    ],
)
def test_wrong_parameters_are_named(api: FlaskClient, path: str, where: str) -> None:
    error = error_of(api.get(path), 422)
    assert [item.path for item in error.details] == [where]
    assert error.hint


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/api/v1/models/vision/a%00b/versions/1", "model"),
        (f"/api/v1/models/vision/a%00b/manifests/sha256:{'0' * 64}", "model"),
        ("/api/v1/resolve?reference=vision/a%00b", "model"),
        ("/api/v1/resolve?reference=vision/a@%00", "reference"),
    ],
)
def test_names_that_no_database_takes_are_refused_at_the_door(
    api: FlaskClient, path: str, where: str
) -> None:
    error = error_of(api.get(path), 422)
    assert (error.where, bool(error.hint)) == (where, True)


def test_the_description_is_openapi_3_1_and_names_every_route(api: FlaskClient) -> None:
    document = api.get("/api/v1/openapi.json").get_json()
    validate(document)
    assert document["openapi"].startswith("3.1")
    rules = {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule) for rule in api.application.url_map.iter_rules()}
    assert set(document["paths"]) == rules - {"/api/v1/openapi.json", "/api/v1/docs"}
    assert {"/api/v1/versions", "/api/v1/artifacts/{digest}/model.pt2", "/healthz"} <= rules
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"].endswith("."), (path, method)
            secret = path.startswith("/api/v1/uploads/")  # whoever sees an upload may send its bytes
            lists = {
                f"/api/v1/{name}" for name in ("whoami", "audit", "tokens", "webhooks", "roles", "retention")
            }
            personal = path in lists or path.endswith(("/preview", "/deliveries"))
            exchanges = {"/api/v1/oidc/token", "/api/v1/device/code", "/api/v1/device/token"}
            proof = path in exchanges  # what they exchange, or what a person does in a browser
            reads = method == "post" and path in {
                "/api/v1/resolve",  # a query cannot hold a machine's description
                "/api/v1/blobs/{digest}/check",  # whoever may read the blob may report it
            }
            changes = method in {"post", "put", "patch", "delete"} and not reads
            assert bool(operation.get("security")) == ((changes or secret or personal) and not proof), (
                path,
                method,
            )


def test_the_schema_of_a_spec_is_published_and_agrees_with_the_server(api: FlaskClient) -> None:
    schema = api.get("/api/v1/spec.schema.json").get_json()
    assert {"model", "source", "inputs"} <= set(schema["properties"])
    check = jsonschema.Draft202012Validator(schema)
    code = {"code": f"sha256:{'0' * 64}", "entry": "net:build"}
    sources = [
        *schema["properties"]["source"]["examples"],
        SPEC["source"],
        code,
        {**code, "entry_is": "function"},
    ]
    assert [source for source in sources if not check.is_valid({**SPEC, "source": source})] == []
    wrong = [None, {}, {**code, "factory": "timm:create_model"}, {**code, "entri": "x"}, {"code": "net.zip"}]
    assert [source for source in wrong if check.is_valid({**SPEC, "source": source})] == []


@pytest.mark.parametrize(
    ("kind", "data", "code"),
    [
        ("code", b"def build(): ...", "bad_code_archive"),
        ("program", b"PK", "bad_program"),
    ],
)
def test_an_uploaded_source_that_is_none_is_a_422_with_its_code_and_place(
    api: FlaskClient, bearer: dict[str, str], kind: str, data: bytes, code: str
) -> None:
    def stored(data: bytes) -> str:
        digest = digest_bytes(data)
        assert api.put(f"/api/v1/blobs/{digest}", data=data, headers=bearer).status_code in {200, 201}
        return digest

    source = {kind: stored(data)} | ({"entry": "net:build"} if kind == "code" else {})
    weights = stored(WEIGHTS) if kind == "program" else None
    wrong = SPEC | {"source": source, "weights": weights}
    error = error_of(api.post("/api/v1/versions", json=wrong, headers=bearer), 422)
    assert (error.code, error.where) == (code, f"source.{kind}")
    assert f"pt2hub publish --{kind}" in (error.hint or "")
    lost = SPEC | {"source": {**source, kind: f"sha256:{'0' * 64}"}, "weights": weights}
    missing = error_of(api.post("/api/v1/versions", json=lost, headers=bearer), 404)
    assert [item.path for item in missing.details] == [f"source.{kind}"]


def test_health_needs_no_database_and_readiness_does(api: FlaskClient, config: ServerConfig) -> None:
    assert api.get("/healthz").status_code == api.get("/readyz").status_code == 200
    with open_container(config, database_url="postgresql://nobody@/none?host=/nowhere") as container:
        lonely = create_app(container, config).test_client()
        assert lonely.get("/healthz").status_code == 200
        assert isinstance(error_of(lonely.get("/readyz"), 503), errors.DatabaseUnavailable)


def test_a_malformed_digest_and_id_are_refused_with_what_they_must_be(api: FlaskClient) -> None:
    for path, allowed in (
        ("artifacts/sha256:zz", "sha256: and 64 lowercase hex digits"),
        ("builds/zz!", "letters, digits and -"),
    ):
        answer = api.get(f"/api/v1/{path}")
        (detail,) = answer.get_json()["details"]
        assert (answer.status_code, detail["allowed"]) == (422, allowed), path
