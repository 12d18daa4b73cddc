"""The main job with real processes: `pt2hub up` with a worker, a client, on both kinds of storage."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import safetensors.torch
import torch

from pt2hub import errors
from pt2hub.cli.trial import Trial
from pt2hub.domain.digests import digest_bytes
from support.running import processes_of
from support.tiny_models import Mlp
from support.workbench import FACTORIES, launcher_of, tiny_spec

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.artifacts import ArtifactView
    from support.s3 import S3Server

pytestmark = pytest.mark.compiles
ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join(str(ROOT / name) for name in ("registry", "workers", "tests"))


def _trial(folder: Path, **environ: str) -> Trial:
    return Trial(folder, PYTHONPATH=PATHS, PT2HUB_FACTORIES=FACTORIES, PT2HUB_SCRATCH=str(folder), **environ)


def _retrained(path: Path) -> Path:
    torch.manual_seed(77)
    safetensors.torch.save_file(Mlp().state_dict(), path)
    return path


def _check(client: Client, reference: str, weights: Path | None, seed: int = 3) -> None:
    torch.manual_seed(seed)
    model = Mlp().eval()
    if weights:
        model.load_state_dict(safetensors.torch.load_file(weights))
    x = torch.randn(3, 8)
    torch.testing.assert_close(client.load(reference)(x), model(x).detach(), rtol=1e-5, atol=1e-5)


def _single_file(client: Client, digest: Digest) -> bytes:
    """The file as anybody gets it who has no pt2hub."""
    with urllib.request.urlopen(f"{client.config.url}/api/v1/artifacts/{digest}/model.pt2") as answer:
        return answer.read()  # type: ignore[no-any-return]  # urlopen is typed as anything


def _figures(artifact: ArtifactView) -> dict[tuple[str, str], float]:
    return {(m.metric, m.subject): m.value for m in artifact.measurements}


def test_a_model_travels_the_whole_way_and_its_retrained_weights_need_no_compiler(tmp_path: Path) -> None:
    trial = _trial(tmp_path)
    with trial.server() as client:
        first = client.publish(tiny_spec(measure={"torch_compile": True}), wait=True)
        assert first.readiness == "ready", first.builds
        assert [step.name for step in first.builds[0].steps] == [
            *("fetch", "export", "key", "compile", "pack", "verify", "measure", "upload", "publish")
        ]
        _check(client, "tiny/mlp@1", None)
        again = client.publish(tiny_spec(measure={"torch_compile": True}))
        assert (again.number, again.created) == (1, False)
        digest = first.builds[0].artifact
        assert digest is not None
        known = client.artifact(digest)
        assert {("latency_p50", s) for s in ("artifact", "eager", "torch_compile")} <= set(_figures(known))
        # `pt2hub up` on one's own machine does with what can be had; a CI without a sandbox fails elsewhere.
        launcher = launcher_of("auto", trial.environ)
        assert known.provenance["isolation"] == launcher.level
        assert (known.provenance["isolation_profile"] is None) == (launcher.level == "process")
        assert digest_bytes(_single_file(client, digest)) == known.single_file
        with pytest.raises(errors.BadCall, match="publish"):
            client.load("tiny/mlp@1")(torch.randn(17, 8))
        lines = [line.text for line in client.logs(first.builds[0].id)]
        assert any("program key" in line for line in lines)

    weights = _retrained(tmp_path / "retrained.safetensors")
    with trial.server({"PT2HUB_BUILD_ENV": "CXX=/bin/false"}) as client:
        second = client.publish(tiny_spec(measure={"torch_compile": True}), weights=weights, wait=True)
        assert second.readiness == "ready", second.builds[0].error
        assert "compile" not in [step.name for step in second.builds[0].steps]
        _check(client, "tiny/mlp@2", weights)
        _check(client, "tiny/mlp@1", None)  # published before the restart
        assert second.builds[0].artifact is not None
        after = client.artifact(second.builds[0].artifact)
        assert after.provenance["compiler_processes"] == []
        assert after.code == known.code
        assert after.weights == second.weights
    assert processes_of(trial.home) == {}


def test_builds_fail_with_the_models_own_fault_and_say_what_to_do(tmp_path: Path) -> None:
    with _trial(tmp_path).server() as client:
        failed = client.publish(tiny_spec("NotANumber"), wait=True)
        with pytest.raises(errors.UnknownFactory):
            client.publish(tiny_spec(source={"factory": "os:system"}))

    error = failed.builds[0].error
    assert failed.readiness == "failed"
    assert error is not None
    assert (error["code"], error["where"], error["kind"]) == ("nan_output", "outputs[0]", "usage")
    assert [step.state for step in failed.builds[0].steps] == ["done", "failed"]


def test_everything_is_rebuilt_from_the_manifests_in_s3(
    tmp_path: Path, s3_server: S3Server, s3_url: str
) -> None:
    trial = _trial(tmp_path, PT2HUB_STORAGE=s3_url, **s3_server.environ())
    with trial.server() as client:
        version = client.publish(tiny_spec(), wait=True)
        assert version.readiness == "ready", version.builds[0].error
        _check(client, "tiny/mlp@1", None)
        digest = version.builds[0].artifact
        assert digest is not None
        before = client.artifact(digest)
    assert not list((trial.home / "server").glob("blobs/blobs/*"))

    # Another home, an empty database, the same bucket: the manifests there are the truth.
    other = Trial(tmp_path / "other", **{k: trial.environ[k] for k in trial.environ if k.startswith("AWS_")})
    other.environ |= {"PYTHONPATH": PATHS, "PT2HUB_STORAGE": s3_url, "PT2HUB_FACTORIES": FACTORIES}
    with other.server() as client:
        command = [sys.executable, "-m", "pt2hub", "admin", "reindex", "--json"]
        subprocess.run(command, env=other.environ, check=True, capture_output=True)
        assert client.artifact(digest) == before
        _check(client, "tiny/mlp@1", None)
