"""Servers of other releases: what both know works, what only one knows is said to be so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.domain.artifacts import CODE_TYPE, CONFIG_SCHEMA, CONFIG_TYPE, WEIGHTS_TYPE, Descriptor, Manifest
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.errors import (
    BadResponse,
    ClientTooOld,
    DigestMismatch,
    Incompatible,
    NotFound,
    NotReady,
    ServerTooOld,
)
from pt2hub.version import __version__
from pt2hub.wire.responses import BuildView, VersionView
from support.artifacts import a_config, a_target
from support.stub import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.stub import Stub

HERE = a_target().name
NEWER_TARGET = "torch3.1-npu-davinci2"
NEWER = {"Pt2hub-Version": "9.1.0"}
OLDER = {"Pt2hub-Version": "0.0.9"}
PROBLEM = "application/problem+json"
DIGEST = digest_bytes(b"manifest")


@pytest.fixture
def client(stub: Stub, tmp_path: Path) -> Iterator[Client]:
    with Client(ClientConfig(home=tmp_path, url=stub.url)) as made:
        yield made


def said(
    value: Any, headers: dict[str, str] = NEWER, status: int = 200, kind: str = "application/json"
) -> Answer:
    return Answer(status, json.dumps(encode(value)).encode(), kind, headers)


def resolved(*targets: str) -> dict[str, Any]:
    artifacts = [{"target": name, "digest": DIGEST, "created_at": "2026", "tier": "gold"} for name in targets]
    return {
        "reference": "team/net",
        "model": "team/net",
        "number": 1,
        "artifacts": artifacts,
        "withdrawn": False,
    }


def version(*states: str, **fields: Any) -> dict[str, Any]:
    builds = tuple(
        replace(BuildView(f"b{at}", "team/net", 1, HERE, state, 1, "2026"), **fields)
        for at, state in enumerate(states)
    )
    view = VersionView("team/net", 1, digest_bytes(b""), "simmering", "2026", {}, {}, builds)
    return {**encode(view), "colour": "blue"}


def test_a_server_too_old_is_refused_by_name(stub: Stub, client: Client) -> None:
    stub.script = [said({"models": []}, OLDER)]
    with pytest.raises(ServerTooOld, match=r"0\.0\.9") as caught:
        client.models.list()
    assert caught.value.where == stub.url
    assert caught.value.hint


def test_fields_of_a_newer_server_are_ignored(stub: Stub, client: Client) -> None:
    stub.script = [said({"models": [{"name": "a/b", "created_at": "2026", "versions": 1, "stars": 5}]})]
    assert [model.name for model in client.models.list()] == ["a/b"]


@pytest.mark.parametrize(
    "answer",
    [
        said({"models": [{"name": 7}]}),
        Answer(404, b"Not Found", "text/plain", NEWER),
    ],
)
def test_an_answer_in_another_form_says_which_side_is_older(
    stub: Stub, client: Client, answer: Answer
) -> None:
    stub.script = [answer]
    with pytest.raises(BadResponse) as caught:
        client.models.list()
    assert "pt2hub 9.1.0" in str(caught.value.hint)
    assert f"this client is {__version__}: upgrade" in str(caught.value.hint)


@pytest.mark.parametrize("status", [404, 405])
def test_a_route_only_one_side_knows_says_which_side_is_older(
    stub: Stub, client: Client, status: int
) -> None:
    problem = {"code": "not_found", "kind": "usage", "detail": "There is no such route."}
    stub.script = [said(problem, status=status, kind=PROBLEM)]
    with pytest.raises(NotFound, match=r"no such route(?s:.)*runs pt2hub 9\.1\.0"):
        client.models.list()


def test_the_same_release_is_not_blamed(stub: Stub, client: Client) -> None:
    stub.script = [said({"models": [{"name": 7}]}, {"Pt2hub-Version": __version__})]
    with pytest.raises(BadResponse, match="report this"):
        client.models.list()


def test_refused_clients_read_why(stub: Stub, client: Client) -> None:
    problem = {
        "code": "client_too_old",
        "kind": "usage",
        "detail": "Speaks to 9 and newer.",
        "hint": "Upgrade.",
    }
    stub.script = [said(problem, status=426, kind=PROBLEM)]
    with pytest.raises(ClientTooOld, match="Upgrade"):
        client.models.list()


def test_targets_of_a_newer_server_are_passed_over(stub: Stub, client: Client) -> None:
    stub.script = [said(resolved(NEWER_TARGET, HERE)), Answer(404, b"here", PROBLEM, NEWER)]
    with pytest.raises(BadResponse):
        client.pull("team/net")
    assert f"/manifests/{DIGEST}" in stub.asked[-1][0]


def test_a_refusal_mentions_targets_of_a_newer_server(stub: Stub, client: Client) -> None:
    stub.script = [said(resolved(NEWER_TARGET))]
    with pytest.raises(Incompatible, match=f"{NEWER_TARGET}  target: needs a newer pt2hub"):
        client.pull("team/net")


def test_a_version_without_artifacts_is_not_ready(stub: Stub, client: Client) -> None:
    stub.script = [said(resolved())]
    with pytest.raises(NotReady, match="pt2hub show team/net@1"):
        client.pull("team/net@1")


def test_a_digest_prefix_pulls_that_artifact_and_no_other(stub: Stub, client: Client) -> None:
    answer = resolved(HERE, HERE)
    answer["artifacts"][1]["digest"] = other = digest_bytes(b"other")
    stub.script = [said(answer), Answer(404, b"", "text/plain")]
    with pytest.raises(BadResponse):
        client.pull(f"team/net@{other[:15]}")
    assert f"/manifests/{other}" in stub.asked[-1][0]


def test_states_of_a_newer_server_are_waited_for_until_the_build_has_an_end(
    stub: Stub, client: Client
) -> None:
    stub.script = [said(version("thawing")), said(version("melted", finished_at="2026"))]
    start = client.versions.get("team/net", 1)
    assert "thawing" in str(start)
    stub.script = [said(version("thawing")), said(version("melted", finished_at="2026"))]
    ended = client.versions.follow(start)
    assert [build.state for build in ended.builds] == ["melted"]


def served(stub: Stub, schema: int) -> str:
    """A pinned artifact with a layer and a field that this client does not know."""
    config = canonical_json({**encode(a_config()), "schema": schema, "mood": "good"})
    blobs = {CONFIG_TYPE: config, CODE_TYPE: b"code", WEIGHTS_TYPE: b"weights", "application/x-new": b"new"}
    first, *layers = [Descriptor(kind, digest_bytes(data), len(data)) for kind, data in blobs.items()]
    manifest = Manifest("application/vnd.pt2hub.package.v1", first, tuple(reversed(layers))).as_bytes()
    stub.script = [Answer(body=data, headers=NEWER) for data in (manifest, config, b"code", b"weights")]
    return f"team/net@{digest_bytes(manifest)}"


def test_layers_and_fields_of_a_newer_release_are_ignored(stub: Stub, client: Client) -> None:
    artifact = client.pull(served(stub, CONFIG_SCHEMA))
    assert (artifact.code.read_bytes(), artifact.weights.read_bytes()) == (b"code", b"weights")
    assert len(stub.asked) == 4


def test_weights_that_change_between_pull_and_load_are_seen(stub: Stub, client: Client) -> None:
    artifact = client.pull(served(stub, CONFIG_SCHEMA))
    artifact.open_weights().close()
    artifact.weights.chmod(0o600)
    artifact.weights.write_bytes(b"Weights")
    with pytest.raises(DigestMismatch):
        artifact.open_weights()


def test_a_config_of_a_newer_schema_is_refused_before_code_is_fetched(stub: Stub, client: Client) -> None:
    with pytest.raises(ClientTooOld, match=f"schema {CONFIG_SCHEMA + 1}"):
        client.pull(served(stub, CONFIG_SCHEMA + 1))
    assert len(stub.asked) == 2
