"""The client and the command line over the real API: checks against machines, selection, targets that are added."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.cli import main as cli
from pt2hub.client.client import Client
from pt2hub.client.machine.host import CompatibilityWarning, whole_host
from pt2hub.client.missing_artifacts import build_missing
from pt2hub.domain.artifacts import NativeCode
from pt2hub.domain.compatibility.hosts import Host, parse_host
from pt2hub.domain.digests import Digest
from pt2hub.domain.targets import flags_of_level
from pt2hub.errors import (
    BadCall,
    BadResponse,
    BlobDamaged,
    DigestMismatch,
    Incompatible,
    InvalidInput,
    NotFound,
    NotReady,
    Unauthorized,
    UnknownTarget,
)
from pt2hub.server.blobs.keys import StorageKey
from support.artifacts import a_target
from support.registry import GPU

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from support.registry import Registry

HERE = a_target()
LOWEST, HIGHEST = replace(HERE, arch="x86_64"), replace(HERE, arch="x86_64_v4")
OTHER_TORCH = replace(HERE, torch="2.14")
MODEL = "vision/resnet18"
NEEDS = NativeCode(HERE.arch, (), (), ("aoti_torch_delete_tensor_object",), "2.31", "3.4.20")


def version_of(served: Registry, natives: dict[str, NativeCode]) -> dict[str, Digest]:
    """A version with an artifact per target, and what each one's libraries require; the digests by target."""
    version = served.submit(targets=list(natives))
    found = {}
    for number, build in enumerate(version.builds):
        served.worker(f"w{number}", build.target)
        claim = served.claim(build.id, f"w{number}")
        publication = served.publication(claim, code=build.target.encode(), native=natives[build.target])
        served.services.builds.publish(claim, publication)
        found[build.target] = publication.manifest.digest
    return found


def v2_machine() -> Host:
    return Host("linux", "x86_64", HERE.torch, flags_of_level("x86_64_v2"))


# -- checks ----------------------------------------------------------------------------------------------


def test_this_machine_is_checked_without_a_token(client: Client, served: Registry) -> None:
    digests = version_of(served, {HERE.name: NEEDS, GPU: replace(NEEDS, cpu_level="x86_64")})
    with Client(replace(client.config, token=None)) as reader:
        found = reader.artifacts.check(f"{MODEL}@1")
    assert (found.model, found.number, found.selected) == (MODEL, 1, digests[HERE.name])
    assert [item.state for item in found.artifacts] == ["compatible", "incompatible"]
    assert "Selected: " + HERE.name in str(found)
    assert not list(client.config.cache.rglob("*")), "nothing was downloaded"


def test_a_described_machine_is_checked(client: Client, served: Registry) -> None:
    version_of(served, {HIGHEST.name: replace(NEEDS, cpu_level="x86_64_v3")})
    found = client.artifacts.check(MODEL, v2_machine())
    assert (found.selected, found.build_target) == (None, f"torch{HERE.torch}-cpu-x86_64_v2")
    assert str(found).endswith(f"pt2hub build {MODEL}@1 --target torch{HERE.torch}-cpu-x86_64_v2 --wait")


def test_a_check_over_http_is_bounded_and_validated(api: FlaskClient, served: Registry) -> None:
    version_of(served, {HERE.name: NEEDS})
    host = {"os": "linux", "machine": "x86_64", "cpu_flags": ["sse2"]}
    good = api.post("/api/v1/resolve", json={"reference": MODEL, "host": host})
    assert (good.status_code, (good.json or {})["selected"]) == (200, None)
    for wrong, place in (
        ({"reference": MODEL, "host": {**host, "glibc": "x" * 500}}, "glibc"),
        ({"reference": MODEL, "host": {**host, "cpu_flags": ["sse2"] * 2_000}}, "cpu_flags"),
        ({"reference": MODEL, "host": {}}, "os"),
        ({"reference": MODEL, "host": []}, "host"),
        ({"reference": MODEL}, "host"),
        ({"reference": 3, "host": host}, "reference"),
        ({"reference": MODEL, "host": host, "more": 1}, "more"),
    ):
        answer = api.post("/api/v1/resolve", json=wrong)
        assert answer.status_code == 422, wrong
        assert place in {item["path"] for item in (answer.json or {})["details"]}
        assert len(answer.data) < 4_000
    assert api.post("/api/v1/resolve", data=b"[" * 10_000).status_code == 422
    assert api.post("/api/v1/resolve", data=b" " * (1 << 19)).status_code == 413
    assert api.post("/api/v1/resolve", json={"reference": "no/such", "host": host}).status_code == 404


@pytest.fixture
def shell(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT2HUB_HOME", str(client.config.home))
    monkeypatch.setenv("PT2HUB_URL", client.config.url)
    monkeypatch.setenv("PT2HUB_TOKEN", str(client.config.token))


def spoken(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, Any]:
    code = cli.run([*args, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("shell")
def test_what_host_prints_is_what_check_takes(
    served: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = version_of(served, {HERE.name: NEEDS})
    code, document = spoken(capsys, "host")
    assert (code, parse_host(document)) == (0, whole_host())
    file = tmp_path / "host.json"
    file.write_text(json.dumps(document))
    code, found = spoken(capsys, "check", MODEL, "--host", str(file))
    assert (code, found["selected"]) == (0, digests[HERE.name])
    assert cli.run(["check", MODEL]) == 0
    assert f"{HERE.name}  compatible" in capsys.readouterr().out
    assert cli.run(["host"]) == 0
    assert f"target              {HERE.name}" in capsys.readouterr().out


@pytest.mark.usefixtures("shell")
def test_check_fails_where_no_artifact_runs(
    served: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version_of(served, {HIGHEST.name: replace(NEEDS, cpu_level="x86_64_v3")})
    file = tmp_path / "host.json"
    file.write_text(json.dumps(v2_machine().as_document()))
    assert cli.run(["check", MODEL, "--host", str(file)]) == 1
    out = capsys.readouterr().out
    assert f"{HIGHEST.name}  incompatible  cpu: needs x86_64_v3, has no abm, avx" in out
    command = f"pt2hub build {MODEL}@1 --target torch{HERE.torch}-cpu-x86_64_v2 --wait"
    assert out.endswith(f"To build it for this machine: {command}\n")
    code, found = spoken(capsys, "check", MODEL, "--host", str(file))
    assert (code, found["build_command"]) == (1, command)


@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "host.json: document, line 1, column 2"),
        ("[]", "host.json: document"),
        ('{"os": "linux"}', "machine: the field is required"),
        ('{"os": "linux", "machine": "x86_64", "cpu_flags": [], "torch": "two"}', "torch: invalid value"),
    ],
)
def test_a_file_that_describes_no_machine_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    file = tmp_path / "host.json"
    file.write_text(text)
    assert cli.run(["check", MODEL, "--host", str(file)]) == 1
    told = capsys.readouterr().err
    assert words in told
    assert "pt2hub host --json" in told or "document" in words
    assert cli.run(["check", MODEL, "--host", str(tmp_path / "absent.json")]) == 1
    assert "Cannot read the description of a machine" in capsys.readouterr().err


# -- selection before a download ---------------------------------------------------------------------------


def test_a_degraded_artifact_is_pulled_with_a_warning(client: Client, served: Registry) -> None:
    digests = version_of(served, {OTHER_TORCH.name: NEEDS})
    with pytest.warns(
        CompatibilityWarning, match=r"degraded here \(torch: needs 2\.14, has 2\.13, which"
    ) as told:
        assert client.pull(MODEL).manifest_digest == digests[OTHER_TORCH.name]
    assert len(told) == 1


def test_a_compatible_artifact_is_preferred_and_pulled_without_a_word(
    client: Client, served: Registry
) -> None:
    lowest = replace(NEEDS, cpu_level="x86_64")
    digests = version_of(served, {OTHER_TORCH.name: NEEDS, LOWEST.name: lowest})
    assert client.pull(MODEL).manifest_digest == digests[LOWEST.name]


def test_the_functions_of_this_libtorch_decide_about_another_release(
    client: Client, served: Registry
) -> None:
    version_of(served, {OTHER_TORCH.name: replace(NEEDS, aoti_symbols=("aoti_torch_of_tomorrow",))})
    with pytest.raises(Incompatible, match="runs on this machine") as caught:
        client.pull(MODEL)
    (detail,) = caught.value.details
    assert detail.message == f"torch: needs 2.14, has {HERE.torch} without aoti_torch_of_tomorrow"


def test_an_artifact_that_stands_in_for_a_better_one_says_so(client: Client, served: Registry) -> None:
    newer, lowest = replace(NEEDS, glibcxx="3.4.99"), replace(NEEDS, cpu_level="x86_64")
    digests = version_of(served, {HERE.name: newer, LOWEST.name: lowest})
    words = rf"{HERE.name} does not run here \(libstdc\+\+: needs GLIBCXX 3\.4\.99 or newer, has GLIBCXX"
    with pytest.warns(CompatibilityWarning, match=words):
        assert client.pull(MODEL).manifest_digest == digests[LOWEST.name]


def test_where_the_machines_own_target_does_not_run_no_build_is_advised(
    client: Client, served: Registry
) -> None:
    version_of(served, {HERE.name: replace(NEEDS, glibcxx="3.4.99")})
    with pytest.raises(Incompatible) as caught:
        client.pull(MODEL)
    assert "was built on a newer system" in str(caught.value.hint)
    assert "pt2hub build" not in str(caught.value)


def test_a_damaged_artifact_for_this_machine_is_called_damaged_by_every_pull(
    client: Client, served: Registry
) -> None:
    version_of(served, {HERE.name: NEEDS})
    ((code,),) = served.sql("SELECT code FROM artifacts")
    key = StorageKey.blob(Digest(code))
    served.services.storage.remove([key.at(1)])
    assert served.services.damage.check_key(key, by="scrub")
    for _ in range(2):
        with pytest.raises(BlobDamaged, match=f"artifact for {HERE.name} is damaged on the server") as caught:
            client.pull(MODEL)
        assert "pt2hub admin heal" in str(caught.value.hint)


def test_the_client_has_the_last_word_whatever_the_server_said(client: Client, served: Registry) -> None:
    digests = version_of(served, {HERE.name: replace(NEEDS, glibcxx="3.4.99")})
    told = replace(whole_host(), glibcxx="3.4.99")
    assert client.artifacts.check(MODEL, told).selected == digests[HERE.name]
    for reference in (MODEL, f"{MODEL}@{digests[HERE.name]}"):
        with pytest.raises(Incompatible, match=r"libstdc\+\+|runs on this machine"):
            client.pull(reference)


def test_a_requested_device_leaves_the_other_ones_artifacts_out(client: Client, served: Registry) -> None:
    digests = version_of(served, {GPU: replace(NEEDS, cpu_level="x86_64"), HERE.name: NEEDS})
    assert client.pull(MODEL, device="cpu").manifest_digest == digests[HERE.name]
    with pytest.raises(Incompatible) as caught:
        client.pull(MODEL, device="cuda:1")
    reasons = {item.path: item.message for item in caught.value.details}
    assert reasons[HERE.name] == "device: needs cpu, has cuda, as requested"
    with pytest.raises(BadCall, match="Unknown device 'gpu'"):
        client.pull(MODEL, device="gpu")


def test_a_server_whose_index_contradicts_its_storage_is_not_believed(
    client: Client, served: Registry
) -> None:
    digests = version_of(served, {HERE.name: NEEDS, LOWEST.name: replace(NEEDS, cpu_level="x86_64")})
    served.worker("gpu", GPU)
    for before, after in ((HERE.name, GPU), (LOWEST.name, HERE.name)):
        served.sql("UPDATE builds SET target = %s WHERE target = %s", after, before)
    with pytest.raises(BadResponse, match="The server resolved vision/resnet18@1 for ") as caught:
        client.pull(MODEL, target=HERE.name)
    assert digests[LOWEST.name] in caught.value.message
    assert not [
        path for path in client.config.cache.rglob("*") if path.is_file() and path.read_bytes() == b"weights"
    ]


def test_a_manifest_of_something_else_is_refused(client: Client, served: Registry) -> None:
    version_of(served, {HERE.name: NEEDS})
    ((referrer,),) = served.sql("SELECT digest FROM referrers LIMIT 1")
    with pytest.raises(BadResponse, match="is a manifest of type 'application/vnd"):
        client.pull(f"{MODEL}@{referrer}")


def test_a_manifest_with_other_bytes_is_refused(client: Client, served: Registry, tmp_path: Path) -> None:
    digest = version_of(served, {HERE.name: NEEDS})[HERE.name]
    (path,) = [
        item
        for item in (tmp_path / "blobs").rglob("*")
        if item.is_file() and digest.split(":")[1] in str(item)
    ]
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data.replace(b'"schemaVersion":2', b'"schemaVersion":3'))
    with pytest.raises(DigestMismatch):
        client.pull(MODEL)


# -- targets that are added --------------------------------------------------------------------------------


def test_a_target_is_added_with_a_token_only(client: Client, served: Registry) -> None:
    version_of(served, {GPU: NEEDS})
    with Client(replace(client.config, token=None)) as stranger, pytest.raises(Unauthorized):
        stranger.versions.add_target(MODEL, 1, HERE.name)
    added = client.versions.add_target(MODEL, 1, HERE.name)
    assert [(build.target, build.state) for build in added.builds] == [
        (GPU, "succeeded"),
        (HERE.name, "queued"),
    ]
    with pytest.raises(UnknownTarget):
        client.versions.add_target(MODEL, 1, "cpu")
    with pytest.raises(NotFound):
        client.versions.add_target(MODEL, 7, HERE.name)


@pytest.mark.usefixtures("shell")
def test_the_command_that_an_error_ends_with_adds_the_target(
    client: Client, served: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    version_of(served, {GPU: NEEDS})
    with pytest.raises(Incompatible) as caught:
        client.pull(MODEL)
    command = str(caught.value).splitlines()[-1].partition("pt2hub ")[2].split()
    assert cli.run([word for word in command if word != "--wait"]) == 0
    told = capsys.readouterr().out
    assert f"{MODEL}@1 for {HERE.name}" in told
    assert "is queued" in told
    assert served.services.publish.version(MODEL, 1).builds[1].target == HERE.name


@pytest.mark.usefixtures("shell")
def test_build_waits_and_fails_with_the_build(served: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    version_of(served, {GPU: NEEDS})
    code, queued = spoken(capsys, "build", f"{MODEL}@1", "--target", LOWEST.name)
    assert (code, queued["state"]) == (0, "queued")
    served.services.builds.fail(served.claim(queued["id"]), NotFound("no such weights"))
    code, failed = spoken(capsys, "build", f"{MODEL}@1", "--target", LOWEST.name, "--wait")
    assert (code, failed["state"], failed["error"]["message"]) == (1, "failed", "no such weights")
    code, error = spoken(capsys, "build", f"{MODEL}@1", "--target", "cpu")
    assert (code, error["error"]["code"]) == (1, "unknown_target")


# -- on_missing, as far as nothing is compiled ---------------------------------------------------------------


@pytest.mark.parametrize("value", ["biuld", 3, True])
def test_on_missing_is_build_or_a_callable(client: Client, value: Any) -> None:
    with pytest.raises(InvalidInput, match="on_missing must be 'build' or a callable"):
        client.load(MODEL, on_missing=value)


def test_no_other_artifact_takes_the_place_of_a_digest(client: Client) -> None:
    with pytest.raises(InvalidInput, match="A digest names one artifact"):
        client.load(f"{MODEL}@sha256:{'0' * 64}", on_missing="build")
    with pytest.raises(InvalidInput, match="A digest names one artifact"):
        client.load(f"{MODEL}@sha256:{'0' * 12}", on_missing=abs)


def test_a_build_that_failed_before_ends_the_wait_at_once(client: Client, served: Registry) -> None:
    version = served.submit(targets=[HERE.name])
    build = version.builds[0].id
    served.services.builds.fail(served.claim(build), NotFound("no such weights"))
    with pytest.raises(NotReady, match="is failed: no such weights") as caught:
        client.load(f"{MODEL}@1", on_missing="build")
    assert f"pt2hub retry {build}" in str(caught.value.hint)


def test_where_the_machines_own_target_does_not_run_nothing_is_built(
    client: Client, served: Registry
) -> None:
    version_of(served, {HERE.name: replace(NEEDS, glibcxx="3.4.99")})
    with pytest.raises(Incompatible, match="runs on this machine"):
        client.load(MODEL, on_missing="build")
    assert len(served.services.publish.version(MODEL, 1).builds) == 1


def test_asking_for_a_build_needs_a_token(client: Client, served: Registry) -> None:
    version_of(served, {GPU: NEEDS})
    with Client(replace(client.config, token=None)) as stranger, pytest.raises(Unauthorized):
        stranger.load(MODEL, on_missing="build")


def test_an_artifact_that_was_built_meanwhile_is_taken(client: Client, served: Registry) -> None:
    version_of(served, {HERE.name: NEEDS})
    missing = NotReady("It had no artifact a moment ago", context={"model": MODEL, "number": 1})
    found = build_missing(client.versions, client.builds, missing, device=None, timeout=0, progress=False)
    assert found == f"{MODEL}@1"
