"""The client against the real API: publish, follow, pull, refuse, work offline."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import pt2hub
from pt2hub.cli import main as cli
from pt2hub.client.client import Client
from pt2hub.domain.builds import BuildState, LogLine
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import (
    Incompatible,
    InvalidInput,
    NotFound,
    ServerUnreachable,
    TooLarge,
    Unauthorized,
)
from pt2hub.wire.problems import from_dict
from pt2hub.wire.responses import VersionView
from support.artifacts import a_target
from support.registry import GPU, a_spec
from support.server import MAX_BLOB_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.builds.events import BuildEvent
    from pt2hub.client.config import ClientConfig
    from support.registry import Registry

HERE = a_target().name


def published(served: Registry, *targets: str) -> Digest:
    """A version with one artifact per target; the digest of the first."""
    for number, target in enumerate(targets):
        served.worker(f"w{number}", target)
    version = served.submit(targets=list(targets))
    digests = []
    for build in version.builds:
        claim = served.claim(build.id)
        publication = served.publication(claim, code=f"code of {build.target}".encode())
        served.services.builds.publish(claim, publication)
        digests.append(publication.manifest.digest)
    return digests[0]


def test_a_spec_is_published_as_a_document_or_as_a_file(
    client: Client, served: Registry, tmp_path: Path
) -> None:
    served.worker("w1")
    first = client.publish(a_spec())
    assert (first.model, first.number, first.created) == ("vision/resnet18", 1, True)
    file = tmp_path / "spec.yaml"
    file.write_text(json.dumps(a_spec()))  # JSON is YAML
    again = client.publish(file)
    assert (again.number, again.created, again.identity) == (1, False, first.identity)


def test_wrong_fields_come_back_as_the_servers_own_error(client: Client) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.publish(a_spec(limits={"seconds": 1}, checks={"tolerance": 9}))
    assert {item.path for item in caught.value.details} == {"limits.seconds", "checks.tolerance"}


def test_publishing_needs_a_token(client: Client) -> None:
    with pytest.raises(Unauthorized), Client(replace(client.config, token=None)) as stranger:
        stranger.publish(a_spec())


def test_a_spec_that_is_not_there_is_named(client: Client, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="YAML or JSON file") as caught:
        client.publish(tmp_path / "absent.yaml")
    assert caught.value.where == str(tmp_path / "absent.yaml")


def test_weights_are_uploaded_once_and_named_in_the_spec(
    client: Client, served: Registry, tmp_path: Path
) -> None:
    served.worker("w1")
    weights = tmp_path / "weights.safetensors"
    header = b'{"w": {"dtype": "U8", "shape": [100000], "data_offsets": [0, 100000]}}'
    weights.write_bytes(len(header).to_bytes(8, "little") + header + bytes(100_000))
    digest = client.blobs.upload(weights)
    assert digest == "sha256:" + hashlib.sha256(weights.read_bytes()).hexdigest()
    assert client.blobs.upload(weights) == digest
    version = client.publish(a_spec(), weights=weights)
    assert version.spec["weights"] == digest


def test_a_file_means_the_same_with_and_without_weights(client: Client, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    text = json.dumps(a_spec(source={"factory": "torchvision.models:resnet18", "kwargs": {"eps": 0.001}}))
    file = tmp_path / "spec.yaml"
    file.write_text(text.replace("0.001", "1e-3"))  # text to YAML 1.1, a number to everyone else
    assert client.publish(file).spec["source"]["kwargs"] == {"eps": 0.001}
    assert client.publish(file, weights=weights).spec["source"]["kwargs"] == {"eps": 0.001}


def test_a_file_that_is_no_spec_is_named_with_its_line(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("model: a/b\nmodel: c/d\n")
    with pytest.raises(InvalidInput, match="duplicate key") as caught:
        client.publish(file, weights=file)
    assert caught.value.where == f"{file}: document, line 2, column 1"


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes"])
def test_a_spec_without_a_form_in_json_is_refused(client: Client, value: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be encoded as JSON") as caught:
        client.publish(a_spec(source={"factory": "torchvision.models:resnet18", "kwargs": {"k": value}}))
    assert caught.value.hint


def test_an_upload_above_the_limit_is_refused_by_name(client: Client, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(MAX_BLOB_BYTES + 1))
    with pytest.raises(TooLarge, match="PT2HUB_MAX_BLOB_BYTES"):
        client.blobs.upload(large)


def test_builds_are_followed_to_their_end(client: Client, served: Registry) -> None:
    version = served.submit(targets=[served.worker("w1") and HERE])
    claim = served.claim(version.builds[0].id)
    served.step(claim, "fetch", "running")
    served.step(claim, "fetch", "done", seconds=0.25)
    events: list[BuildEvent] = []

    def end_after_the_first(event: BuildEvent) -> None:
        if not events:
            served.services.builds.fail(claim, NotFound("no such weights", hint="Upload them."))
        events.append(event)

    ended = client.versions.follow(version, end_after_the_first)
    told = [event.step.name if event.step else event.build.state for event in events]
    assert told == ["running", "fetch", "failed"]
    assert ended.builds[0].state == BuildState.FAILED
    assert isinstance(from_dict(ended.builds[0].error or {}), NotFound)


def test_logs_come_in_order_and_from_a_position(client: Client, served: Registry) -> None:
    claim = served.claim(served.submit().builds[0].id)
    lines = [LogLine(seq, 1.0 + seq, "fetch", "info", f"line {seq}") for seq in range(1, 1502)]
    served.services.builds.report(claim, [], lines)
    assert [line.seq for line in client.builds.logs(claim.build)] == list(range(1, 1502))
    assert [line.text for line in client.builds.logs(claim.build, after=1499)] == ["line 1500", "line 1501"]


def test_pulling_takes_the_target_that_runs_here(client: Client, served: Registry) -> None:
    published(served, GPU, HERE)
    artifact = client.pull("vision/resnet18@1")
    assert artifact.config.target.name == HERE
    assert artifact.code.read_bytes() == f"code of {HERE}".encode()
    assert artifact.weights.read_bytes() == b"weights"
    assert artifact.code_digest == digest_bytes(artifact.code.read_bytes())


def test_a_refusal_is_a_table_of_targets_and_reasons(client: Client, served: Registry) -> None:
    published(served, GPU, "torch1.9-cpu-x86_64")
    with pytest.raises(Incompatible) as caught:
        client.pull("vision/resnet18")
    here = a_target()
    assert str(caught.value).splitlines() == [
        "vision/resnet18@1: No artifact of the version runs on this machine",
        f"  {GPU}  device: needs a CUDA GPU, has no GPU",
        f"  {'':{len(GPU)}}  cuda: needs 13.0, has a CPU build of torch",
        f"  torch1.9-cpu-x86_64   torch: needs 1.9, has {here.torch}",
        f"  To build it for this machine: pt2hub build vision/resnet18@1 --target {here} --wait",
    ]
    kept = [path.read_bytes() for path in client.config.cache.rglob("*") if path.is_file()]
    assert not [data for data in kept if data == b"weights" or data.startswith(b"code of")]


def test_another_machines_target_is_pulled_on_request(client: Client, served: Registry) -> None:
    digest = published(served, GPU, HERE)
    assert client.pull("vision/resnet18@1", target=GPU).manifest_digest == digest
    with pytest.raises(NotFound, match="Its targets: ") as caught:
        client.pull("vision/resnet18@1", target="torch2.13-cpu-x86_64")
    assert HERE in str(caught.value.hint)
    with pytest.raises(Incompatible):
        client.pull(f"vision/resnet18@{digest}")


def test_a_pinned_artifact_in_the_cache_needs_no_server(client: Client, served: Registry) -> None:
    reference = f"vision/resnet18@{published(served, HERE)}"
    pulled = client.pull(reference)
    with Client(replace(client.config, url="http://127.0.0.1:1")) as offline:
        assert offline.pull(reference) == pulled
        assert offline.pull(reference, verify="always") == pulled
        with pytest.raises(ServerUnreachable):
            offline.pull("vision/resnet18@1")
        with pytest.raises(NotFound, match=r"belongs to vision/resnet18"):
            offline.pull(reference.replace("resnet18", "resnet19"))


def test_a_pinned_artifact_in_the_cache_is_pulled_without_http_or_terminal_code(
    client: Client, served: Registry
) -> None:
    reference = f"vision/resnet18@{published(served, HERE)}"
    client.pull(reference)
    program = f"import sys, pt2hub; pt2hub.pull({reference!r}); print(*sys.modules)"
    environ = os.environ | {"PT2HUB_HOME": str(client.config.home), "PT2HUB_URL": "http://127.0.0.1:1"}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert not {"urllib3", "rich", "torch", "asyncio", "yaml"} & set(ended.stdout.split())
    assert ended.stderr == ""


def test_an_artifact_is_pulled_by_the_beginning_of_its_digest(client: Client, served: Registry) -> None:
    digest = published(served, HERE, GPU)
    assert client.pull(f"vision/resnet18@{digest[:20]}").manifest_digest == digest
    with pytest.raises(NotFound):
        client.pull(f"vision/resnet18@sha256:{'0' * 12}")


@pytest.mark.parametrize("token", [None, "pt2_x"])
def test_an_upload_without_a_token_is_refused_and_says_where_tokens_come_from(
    client: Client, tmp_path: Path, token: str | None
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(MAX_BLOB_BYTES // 2))
    config = replace(client.config, token=token, token_from="PT2HUB_TOKEN")
    with pytest.raises(Unauthorized, match="pt2hub admin token") as caught, Client(config) as stranger:
        stranger.blobs.upload(file)
    words = "The token sent comes from PT2HUB_TOKEN." if token else "No token was sent"
    assert words in str(caught.value.hint)


def test_a_piped_program_sees_no_progress_unless_it_asks(
    client: Client, served: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    version = served.submit(targets=[HERE])
    served.services.builds.fail(served.claim(version.builds[0].id), NotFound("no such weights"))
    client.versions.follow(version)
    assert capsys.readouterr() == ("", "")
    ended = client.versions.follow(version, progress=True)
    captured = capsys.readouterr()
    assert (captured.out, f"{HERE}  failed" in captured.err) == ("", True)
    assert "no such weights" in repr(ended)


def test_a_damaged_cached_layer_is_fetched_again(client: Client, served: Registry) -> None:
    reference = f"vision/resnet18@{published(served, HERE)}"
    code = client.pull(reference).code
    code.chmod(0o644)
    code.write_bytes(b"damaged")
    assert client.pull(reference).code.read_bytes() == f"code of {HERE}".encode()


def test_what_is_not_there_is_named(client: Client, served: Registry) -> None:
    published(served, HERE)
    with pytest.raises(NotFound):
        client.pull("vision/resnet18@9")
    with pytest.raises(InvalidInput, match="invalid version"):
        client.pull("vision/resnet18@?")


def test_targets_and_artifacts_can_be_read(client: Client, served: Registry) -> None:
    digest = published(served, HERE)
    assert HERE in [item.name for item in client.targets.list()]
    assert client.artifacts.get(digest).arch == a_target().arch


# -- the command line over the same server ---------------------------------------------------------------


@pytest.fixture
def cli_environ(client: Client, monkeypatch: pytest.MonkeyPatch) -> ClientConfig:
    monkeypatch.setenv("PT2HUB_HOME", str(client.config.home))
    monkeypatch.setenv("PT2HUB_URL", client.config.url)
    monkeypatch.setenv("PT2HUB_TOKEN", str(client.config.token))
    return client.config


def spoken(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, Any]:
    code = cli.run([*args, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("cli_environ")
def test_show_judges_an_artifact_by_what_its_libraries_need_not_by_its_target_alone(
    served: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    served.worker("w1", HERE)
    claim = served.claim(served.submit(targets=[HERE]).builds[0].id)
    publication = served.publication(claim)
    native = replace(publication.config.native, glibc="2.999")
    served.services.builds.publish(claim, served.publication(claim, native=native))
    code, shown = spoken(capsys, "show", "vision/resnet18@1")
    assert (code, shown["pull"]) == (0, f"pt2hub pull vision/resnet18@1 --target {HERE}")
    assert shown["compatibility"][HERE].startswith("libc: needs glibc 2.999 or newer, has glibc")


@pytest.mark.usefixtures("cli_environ")
def test_the_command_line_publishes_shows_and_pulls(
    served: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = published(served, HERE)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(a_spec(targets=[HERE])))
    code, version = spoken(capsys, "publish", str(spec), "--wait")
    assert (code, decode(VersionView, version).builds[0].artifact) == (0, digest)
    code, shown = spoken(capsys, "show", "vision/resnet18@1")
    assert (code, shown["compatibility"]) == (0, {HERE: "runs here"})
    code, build = spoken(capsys, "builds", version["builds"][0]["id"])
    assert (code, build["state"]) == (0, "succeeded")
    code, lines = spoken(capsys, "logs", build["id"])
    assert (code, lines) == (0, {"lines": []})
    code, pulled = spoken(capsys, "pull", "vision/resnet18@1")
    assert (code, pulled["artifact"]) == (0, digest)
    assert cli.run(["show", "vision/resnet18@1"]) == 0
    text = capsys.readouterr().out
    assert "runs here" in text
    assert digest in text
    assert "\x1b" not in text, "no colours where it is no terminal"


@pytest.mark.usefixtures("cli_environ")
def test_a_failed_build_is_told_with_its_reason_and_exit_code(
    served: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served.worker("w1")
    claim = served.claim(served.submit(targets=[HERE]).builds[0].id)
    served.services.builds.fail(claim, NotFound("no such weights", where="weights", hint="Upload them."))
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(a_spec(targets=[HERE])))
    code, answer = spoken(capsys, "publish", str(spec), "--wait")
    assert (code, answer["error"]["code"]) == (1, "not_found")
    assert cli.run(["publish", str(spec), "--wait"]) == 1
    told = capsys.readouterr()
    assert "Upload them." in told.out
    assert f"{HERE}  failed" in told.err


def test_pt2hub_pull_reads_the_environment(served: Registry, cli_environ: ClientConfig) -> None:
    published(served, HERE)
    assert pt2hub.pull("vision/resnet18@1").code.is_relative_to(cli_environ.cache)
