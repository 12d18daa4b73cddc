"""The main job with real processes: `pt2hub up` with a worker, a client, and a storage in S3.

The tutorial's test and the wheel's do it on a local storage.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import safetensors.torch
import torch

from pt2hub import errors
from pt2hub.cli.operations.temporary_server import TemporaryServer
from pt2hub.client.lock.declarations import Project
from pt2hub.client.lock.locker import Upgrade
from pt2hub.domain.artifacts import LOG_TYPE
from pt2hub.domain.digests import digest_bytes
from pt2hub.testing import FakeRegistry
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.differences import DiffView
from pt2hub.wire.responses import VersionView
from support.bounded import TORCH, mended, spec
from support.headers import PLACE
from support.running import processes_of
from support.tiny_models import Mlp
from support.workbench import FACTORIES, launcher_of, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.client.client import Client
    from pt2hub.domain.digests import Digest
    from support.s3 import S3Server

pytestmark = pytest.mark.compiles
ROOT = Path(__file__).resolve().parents[3]
PATHS = os.pathsep.join(str(ROOT / name) for name in ("registry", "workers", "tests"))


MEASURE = {"torch_compile": True, "processes": 2}
UNMEASURED = {"processes": 0}
MENDED = mended(TORCH)
COMMENTED = MENDED.replace("def act", "# mended\ndef act").replace("def build", "# no other model\ndef build")
OPERATORS = {"first": TORCH, "mended": MENDED, "commented": COMMENTED}
"""Sources whose operators differ in nothing but their bodies, or in nothing at all."""
DIFFERENT = (
    ("tiny/bounded@1", "tiny/bounded@2"),
    ("tiny/bounded@2", "tiny/bounded@3"),
    ("tiny/mlp@1", "tiny/bounded@1"),
)
"""Pairs of versions whose differences are shown."""
TOO_LARGE = torch.full((3, 8), 76.28)
LOAD = """
import sys, torch
before = set(sys.modules)
import pt2hub
pt2hub.load("tiny/mlp@1")(torch.zeros(3, 8))
print(*set(sys.modules) - before)
"""
LOAD_LOCKED = """
import sys, torch
import pt2hub
x = torch.randn(3, 8, generator=torch.Generator().manual_seed(5))
print(pt2hub.load("tiny/mlp", lock=sys.argv[1])(x).tolist())
"""
UNNEEDED = (
    *(
        "pt2hub.archive.package_splitter",
        "pt2hub.archive.zip.encoder",
        "pt2hub.cli",
        "pt2hub.server",
        "pt2hub_workers",
    ),
    *(
        "pt2hub.domain.performance.metrics",
        "pt2hub.rendering",
        "pt2hub.wire.performance",
        "pt2hub.wire.responses",
    ),
    *("asyncio", "decimal", "filelock", "fractions", "importlib.metadata", "pydantic", "rich", "statistics"),
    *("torch._dynamo", "torch._inductor", "torch.export", "torchvision", "triton", "yaml"),
)
"""Modules, and packages with all that is in them, that a load has no use for: half of its time went there once."""
SPEC = spec(
    "tiny/bounded",
    dims={"batch": {"min": 1, "max": 16, "example": 2}},
    measure=UNMEASURED,
)
X = torch.randn(3, 8, generator=torch.Generator().manual_seed(5))


@dataclass(frozen=True)
class Bounded:
    """A published model with an operator: its provenance, what it computes, and its build's log."""

    provenance: dict[str, Any]
    outputs: torch.Tensor
    log: str


@dataclass(frozen=True)
class First:
    """A model on its whole way, and what came of it: the views of the server, and what was computed."""

    trial: TemporaryServer
    version: VersionView
    again: VersionView
    failed: VersionView
    artifact: ArtifactView
    single_file: bytes
    lines: list[str]
    outputs: torch.Tensor
    refused: list[errors.Pt2hubError]
    imported: frozenset[str]
    bounded: list[Bounded]
    diffs: list[DiffView]
    audited: list[dict[str, Any]]
    lock: Path
    exported: Path

    @property
    def digest(self) -> Digest:
        """The artifact's digest."""
        assert self.version.builds[0].artifact is not None
        return self.version.builds[0].artifact


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> First:
    """A server and its worker that publish a model, refuse others, and are stopped."""
    folder = tmp_path_factory.mktemp("main")
    storage = {"PT2HUB_STORAGE": f"s3://{s3_server.bucket}/{secrets.token_hex(8)}", **s3_server.environ()}
    # A directory for temporary files, and so a device lock, of its own: tests beside this one measure, too.
    scratch = {"PT2HUB_SCRATCH": str(folder), "PT2HUB_HEADERS": str(PLACE), "TMPDIR": str(folder)}
    trial = TemporaryServer(folder, PYTHONPATH=PATHS, PT2HUB_FACTORIES=FACTORIES, **scratch, **storage)
    document = tiny_spec(measure=MEASURE)
    with trial.server() as client:
        version = client.publish(document, wait="measured")
        assert version.readiness == "ready", version.builds
        digest = version.builds[0].artifact
        assert digest is not None
        model = client.load("tiny/mlp@1")
        return First(
            trial,
            version,
            again=client.publish(document),
            failed=client.publish(tiny_spec("NotANumber", measure=UNMEASURED), wait=True),
            artifact=client.artifacts.get(digest),
            single_file=_single_file(client, digest),
            lines=[line.text for line in client.builds.logs(version.builds[0].id)],
            outputs=model(X),
            refused=[
                _refusal(lambda: model(torch.randn(17, 8))),
                _refusal(lambda: client.publish(tiny_spec(source={"factory": "os:system"}))),
            ],
            imported=_imported_by_a_load(trial),
            bounded=[_bounded(client, folder / name, source) for name, source in OPERATORS.items()],
            diffs=[client.artifacts.diff(*pair) for pair in DIFFERENT],
            audited=_audited(trial),
            lock=_lock(client, folder),
            exported=_exported(trial, folder / "exported", storage["PT2HUB_STORAGE"]),
        )


def _bounded(client: Client, folder: Path, source: str) -> Bounded:
    """Publishes a source with an operator, and loads it."""
    folder.mkdir()
    (folder / "net.py").write_text(source)
    build = client.publish(SPEC, code=folder, wait=True).builds[0]
    assert build.state == "succeeded", build.error
    assert build.artifact is not None
    return Bounded(
        client.artifacts.get(build.artifact).provenance,
        client.load(f"tiny/bounded@{build.number}")(TOO_LARGE),
        "\n".join(line.text for line in client.builds.logs(build.id)),
    )


def _lock(client: Client, folder: Path) -> Path:
    """Locks the model."""
    project = Project(folder / "pt2hub.lock", None)
    client.locks.update(project, ["tiny/mlp@1"], upgrade=Upgrade())
    return project.lock


def _exported(trial: TemporaryServer, folder: Path, storage: str) -> Path:
    """Exports the model as a repository for Triton, a bundle, and a single file in the bucket, by commands."""
    for arguments in (
        ("export", "triton", "tiny/mlp@1", str(folder / "triton")),
        ("export", "bundle", "tiny/mlp@1", str(folder / "mlp.tar")),
        ("pull", "tiny/mlp@1", "-o", f"{storage}-exports/model.pt2"),
    ):
        command = [sys.executable, "-m", "pt2hub", *arguments, "--json"]
        done = subprocess.run(command, env=trial.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _audited(trial: TemporaryServer) -> list[dict[str, Any]]:
    """The artifacts that reuse code, as the audit lists them."""
    command = [sys.executable, "-m", "pt2hub", "admin", "audit-keys", "--json"]
    done = subprocess.run(command, env=trial.environ, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["artifacts"]
    return found


def _single_file(client: Client, digest: Digest) -> bytes:
    """The file as anybody gets it who has no pt2hub."""
    with urllib.request.urlopen(f"{client.config.url}/api/v1/artifacts/{digest}/model.pt2") as answer:
        return answer.read()  # type: ignore[no-any-return]  # urlopen is typed as anything


def _imported_by_a_load(trial: TemporaryServer) -> frozenset[str]:
    """The modules that a load and a call add to those of torch, in a fresh process whose cache has the files."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD], env=trial.environ, capture_output=True, text=True, check=True
    )
    return frozenset(done.stdout.split())


def _refusal(call: Callable[[], object]) -> errors.Pt2hubError:
    with pytest.raises(errors.Pt2hubError) as caught:
        call()
    return caught.value


def _expected(weights: Path | None = None) -> torch.Tensor:
    """What the model computes that was published."""
    torch.manual_seed(3)
    model = Mlp().eval()
    if weights:
        model.load_state_dict(safetensors.torch.load_file(weights))
    return model(X).detach()


def _steps(version: VersionView) -> list[str]:
    return [step.name for step in version.builds[0].steps]


def test_a_load_in_a_fresh_process_imports_only_what_it_needs(first: First) -> None:
    assert {"pt2hub.client.artifacts.loader", "pt2hub.client.http.transport"} <= first.imported
    unneeded = {name for name in first.imported for part in UNNEEDED if f"{name}.".startswith(f"{part}.")}
    assert unneeded == set(), "these are text for people, writing, or other commands: import them elsewhere"


def test_a_model_travels_the_whole_way(first: First) -> None:
    assert _steps(first.version) == [
        *("fetch", "export", "key", "compile", "pack", "verify", "upload", "publish")
    ]
    torch.testing.assert_close(first.outputs, _expected(), rtol=1e-5, atol=1e-5)
    assert (first.again.number, first.again.created) == (1, False)
    measured = {(m.metric, m.implementation) for m in first.artifact.measurements}
    assert {("latency_p50", s) for s in ("artifact", "eager", "torch_compile")} <= measured
    assert {("speedup", s) for s in ("eager", "torch_compile")} <= measured
    assert {(f"first_inference{caches}", "torch_compile") for caches in ("", "_warm")} <= measured
    own = (
        "throughput",
        "load_time",
        "first_inference",
        "first_inference_speedup",
        "host_memory_peak",
        "package_bytes",
        "compile_time",
    )
    assert {(metric, "artifact") for metric in own} <= measured
    (latency,) = (
        m for m in first.artifact.measurements if (m.metric, m.implementation) == ("latency_p50", "artifact")
    )
    assert len(latency.replicates or []) == len(latency.samples or []) == 2
    # `pt2hub up` on one's own machine does with what can be had; a CI without a sandbox fails elsewhere.
    launcher = launcher_of("auto", first.trial.environ)
    assert first.artifact.provenance["isolation"] == launcher.level
    assert (first.artifact.provenance["isolation_profile"] is None) == (launcher.level == "process")
    assert digest_bytes(first.single_file) == first.artifact.single_file
    assert any("Program key" in line for line in first.lines)
    assert [type(error) for error in first.refused] == [errors.BadCall, errors.UnknownFactory]
    assert "publish" in str(first.refused[0])
    assert not list((first.trial.home / "server").glob("blobs/blobs/*"))


def test_builds_fail_with_the_models_own_fault_and_say_what_to_do(first: First) -> None:
    error = first.failed.builds[0].error
    assert first.failed.readiness == "failed"
    assert error is not None
    assert (error["code"], error["where"], error["kind"]) == ("nan_output", "outputs[0]", "usage")
    assert [step.state for step in first.failed.builds[0].steps] == ["done", "failed"]


def test_another_operators_body_is_not_answered_with_code_of_the_first(first: First) -> None:
    for made in first.bounded:
        assert made.provenance["operators"] == ["bounded.act.default"]
        assert (
            "operator bounded.act.default: the key contains its source and the graph of its body" in made.log
        )
    original, other, commented = first.bounded
    torch.testing.assert_close(original.outputs, torch.zeros_like(TOO_LARGE))
    assert other.provenance["code_reused_from"] is None
    torch.testing.assert_close(other.outputs, TOO_LARGE * 3)
    assert commented.provenance["code_reused_from"] is not None
    torch.testing.assert_close(commented.outputs, TOO_LARGE * 3)
    assert [item["certainty"] for item in first.audited] == ["named"]


def test_a_diff_says_why_code_was_or_was_not_reused(first: First) -> None:
    other, commented, models = first.diffs
    assert not other.key.same
    paths = [item.path for item in other.key.fields]
    assert paths == ["operators.(decomposed graph)", "operators.bounded.act.default"]
    assert other.key.reasons[0] == (
        "The code of custom operators differs: (decomposed graph); bounded.act.default."
    )
    assert commented.key.same
    assert "reuses the code that was compiled for version 2" in commented.key.reasons[1]
    assert [item.part for item in commented.sizes if item.same] == ["code", "weights", "package"]
    changed = {item.path.partition(".")[0] for item in models.key.fields}
    assert {"graph", "operators", "constants"} <= changed
    assert "toolchain" not in changed
    assert (models.graph.missing, models.kernels.missing) == ("", "")
    assert models.graph.added
    assert f"The exported graph differs: {models.graph.summary}." in models.key.reasons
    assert models.kernels.before_calls
    assert other.graph.summary == "", "the graph calls the operator by name"
    for diff in first.diffs:
        assert (diff.key.missing, diff.spec.missing, diff.numerics.missing) == ("", "", "")
        assert diff.spec.fields, "versions of one model differ in their specs"
        # Which output is closest to its limit depends on the order of sums, and only one artifact may have recorded it.
        assert any(None not in (item.before, item.after) for item in diff.numerics.errors)


def test_with_server_and_database_down_a_locked_model_is_loaded_from_the_bucket(
    first: First, tmp_path: Path
) -> None:
    assert processes_of(first.trial.home) == {}, "nothing of pt2hub runs"
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
    machine = {"PT2HUB_HOME": str(tmp_path), "PYTHONPATH": PATHS, "PATH": os.environ["PATH"]}
    for more in ({name: first.trial.environ[name] for name in keys}, {"PT2HUB_OFFLINE": "1"}):
        done = subprocess.run(
            [sys.executable, "-c", LOAD_LOCKED, str(first.lock)],
            env=machine | more,
            capture_output=True,
            text=True,
            check=True,
        )
        torch.testing.assert_close(torch.tensor(json.loads(done.stdout)), first.outputs)
        assert done.stderr == "", "a lock is not a fallback"


def test_a_bundle_is_imported_and_loaded_where_no_server_is(first: First, tmp_path: Path) -> None:
    machine = {
        "PT2HUB_HOME": str(tmp_path / "home"),
        "PYTHONPATH": PATHS,
        "PATH": os.environ["PATH"],
        "PT2HUB_OFFLINE": "1",
    }
    bundle = first.exported / "mlp.tar"
    done = subprocess.run(
        [sys.executable, "-m", "pt2hub", "import", str(bundle), "--json"],
        env=machine,
        capture_output=True,
        text=True,
        check=True,
    )
    (found,) = json.loads(done.stdout)["artifacts"]
    assert (found["reference"], found["digest"]) == ("tiny/mlp@1", first.digest)
    program = LOAD_LOCKED.replace(", lock=sys.argv[1]", "").replace("tiny/mlp", "tiny/mlp@1")
    done = subprocess.run(
        [sys.executable, "-c", program], env=machine, capture_output=True, text=True, check=True
    )
    torch.testing.assert_close(torch.tensor(json.loads(done.stdout)), first.outputs)
    with FakeRegistry() as registry:
        registry.add_bundle(bundle)
        torch.testing.assert_close(registry.client.load("tiny/mlp")(X), first.outputs)
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(data)
    refused = subprocess.run(
        [sys.executable, "-m", "pt2hub", "import", str(damaged), "--json"],
        env=machine | {"PT2HUB_HOME": str(tmp_path / "other")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["code"] in {"digest_mismatch", "corrupt_archive"}


def test_a_cpp_program_runs_the_model_of_a_triton_repository(first: First, tmp_path: Path) -> None:
    model = first.exported / "triton" / "tiny_mlp"
    text = (model / "config.pbtxt").read_text()
    assert 'name: "ARGS[0]"\n    data_type: TYPE_FP32\n    dims: [ -1, 8 ]' in text
    assert 'name: "RESULT"\n    data_type: TYPE_FP32\n    dims: [ -1, ' in text
    file = model / "1" / "model.pt2"
    assert file.read_bytes() == first.single_file
    page = (ROOT / "docs" / "how-to" / "other-runtimes.md").read_text()
    sources = dict(re.findall(r"```(cpp|sh)\n(.*?)```", page, re.DOTALL))
    (tmp_path / "main.cpp").write_text(sources["cpp"])
    script = sources["sh"].replace("python3", sys.executable).replace("./main model.pt2", f"./main {file}")
    done = subprocess.run(["bash", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    torch.manual_seed(3)
    expected = Mlp().eval()(torch.ones(3, 8)).sum().item()
    assert float(done.stdout) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_single_file_lies_in_the_bucket(first: First) -> None:
    environ = first.trial.environ
    bucket, _, prefix = environ["PT2HUB_STORAGE"].removeprefix("s3://").partition("/")
    s3 = boto3.client(
        "s3",
        endpoint_url=environ["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
    found = s3.get_object(Bucket=bucket, Key=f"{prefix}-exports/model.pt2")["Body"].read()
    assert found == first.single_file


def test_after_a_restart_retrained_weights_need_no_compiler_and_what_was_published_is_there(
    first: First, tmp_path: Path
) -> None:
    weights = tmp_path / "retrained.safetensors"
    torch.manual_seed(77)
    safetensors.torch.save_file(Mlp().state_dict(), weights)
    with first.trial.server({"PT2HUB_BUILD_ENV": "CXX=/bin/false"}) as client:
        second = client.publish(tiny_spec(measure=UNMEASURED), weights=weights, wait=True)
        assert second.readiness == "ready", second.builds[0].error
        assert second.builds[0].artifact is not None
        artifact = client.artifacts.get(second.builds[0].artifact)
        loaded = {number: client.load(f"tiny/mlp@{number}")(X) for number in (1, 2)}

    assert "compile" not in _steps(second)
    torch.testing.assert_close(loaded[2], _expected(weights), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loaded[1], _expected(), rtol=1e-5, atol=1e-5)
    assert artifact.provenance["compiler_processes"] == []
    assert artifact.code == first.artifact.code
    assert artifact.weights == second.weights
    assert processes_of(first.trial.home) == {}


def test_everything_is_rebuilt_from_the_manifests_in_s3(first: First, tmp_path: Path) -> None:
    # Another home, an empty database, the same bucket: the manifests there are the truth.
    kept = re.compile("AWS_|PYTHONPATH|PT2HUB_(STORAGE|FACTORIES|HEADERS)")
    other = TemporaryServer(
        tmp_path, **{name: said for name, said in first.trial.environ.items() if kept.match(name)}
    )
    with other.server({"PT2HUB_TOOLCHAIN": "noop"}) as client:  # nothing is built: it needs no compiler
        command = [sys.executable, "-m", "pt2hub", "admin", "reindex", "--json"]
        subprocess.run(command, env=other.environ, check=True, capture_output=True)
        rebuilt = client.artifacts.get(first.digest)
        torch.testing.assert_close(client.load("tiny/mlp@1")(X), _expected(), rtol=1e-5, atol=1e-5)
    assert rebuilt.measurement is not None
    assert rebuilt.measurement.state == "measured"  # by a job of which the manifests know nothing
    later: dict[str, Any] = {"referrers": (), "measurements": [], "measurement": None}
    assert replace(rebuilt, **later) == replace(first.artifact, **later)
    # The second version runs this one's code, and was not timed beside it.
    own = first.artifact.measurements
    assert [item for item in own if item not in rebuilt.measurements] == []
    assert len(rebuilt.measurements) == len(own)
    assert [item for item in first.artifact.referrers if item not in rebuilt.referrers] == []
    added = {item.artifact_type for item in rebuilt.referrers if item not in first.artifact.referrers}
    assert added <= {LOG_TYPE}, "the log is put away some time after the build"
