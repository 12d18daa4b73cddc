"""An artifact that does not run here is refused before native code, with the axis that fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.client.machine.host import check_host, this_host
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.targets import Target
from pt2hub.errors import BadCall, CorruptArchive, DigestMismatch, Incompatible, NotFound
from support.artifacts import a_config

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.artifacts import ArtifactConfig


def local(folder: Path, config: ArtifactConfig) -> LocalArtifact:
    code, weights = folder / "code.zip", folder / "weights.safetensors"
    code.write_bytes(b"no zip")
    weights.write_bytes(b"")
    return LocalArtifact.from_files(config, code, weights)


def test_this_host_knows_torch_and_the_processor() -> None:
    host = this_host()
    assert host.os == "linux"
    assert host.torch
    assert "sse2" in host.cpu_flags


def test_a_fitting_artifact_is_let_through() -> None:
    check_host(a_config())


@pytest.mark.parametrize(
    ("target", "axis", "needs"),
    [
        (Target("1.9", "cpu", "x86_64"), "torch", "1.9"),
        (Target("2.13", "cuda", "sm999", cuda="999"), "device", "a CUDA GPU"),
        (Target("2.13", "cpu", "x86_64", machine="riscv64"), "machine", "riscv64"),
    ],
)
def test_another_machine_is_named_with_needs_and_has(target: Target, axis: str, needs: str) -> None:
    with pytest.raises(Incompatible, match=f"{axis}: needs {needs}, has") as caught:
        check_host(a_config(target=target))
    assert {item["axis"] for item in caught.value.context["findings"]} >= {axis}
    assert "To build it for this machine: pt2hub build team/net@1 --target torch" in str(caught.value.hint)


def test_where_the_artifact_is_for_this_machines_target_no_build_is_advised() -> None:
    config = a_config()
    with pytest.raises(Incompatible, match=r"libstdc\+\+: needs GLIBCXX 3\.4\.99 or newer") as caught:
        check_host(replace(config, native=replace(config.native, glibcxx="3.4.99")))
    assert "was built on a newer system" in str(caught.value.hint)
    assert (caught.value.context["model"], caught.value.context["number"]) == ("team/net", 1)


def test_the_wrong_device_is_an_axis(tmp_path: Path) -> None:
    with pytest.raises(Incompatible, match="device: needs cpu, has cuda, as requested"):
        load_artifact(local(tmp_path, a_config()), device="cuda:0")
    with pytest.raises(BadCall, match="Unknown device 'gpu'"):
        load_artifact(local(tmp_path, a_config()), device="gpu")


def test_a_damaged_code_layer_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    artifact = local(tmp_path, a_config())
    with pytest.raises(CorruptArchive):
        load_artifact(artifact)
    known = LocalArtifact(
        artifact.config, artifact.code, artifact.weights, code_digest=digest_bytes(b"a zip")
    )
    with pytest.raises(DigestMismatch):
        load_artifact(known)
    artifact.code.unlink()
    with pytest.raises(NotFound, match="Pull the artifact again"):
        load_artifact(artifact)
