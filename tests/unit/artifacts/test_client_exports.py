"""The single file is assembled from the cache and proved against the artifact's config."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save, save_file

from pt2hub import archive
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.client.artifacts.single_file import write_model
from pt2hub.domain.artifacts import Constants
from pt2hub.errors import DigestMismatch, HomeUnusable
from support.artifacts import a_config, a_constant

if TYPE_CHECKING:
    from pathlib import Path

BLOB = "model/data/aotinductor/model/model.wrapper_weights.blob"


@pytest.fixture
def artifact(tmp_path: Path) -> LocalArtifact:
    code, weights = tmp_path / "code.zip", tmp_path / "weights.safetensors"
    save_file({"w": torch.arange(3.0)}, weights)
    literals = save({"_tensor_constant0": torch.tensor([7.0])})
    archive.write_zip(code, [("model/version", b"3"), ("model/extra/literals.safetensors", literals)])
    table = (a_constant("w", (3,)), a_constant("_tensor_constant0", (1,), offset=64, source="extra"))
    config = replace(a_config(), constants=Constants(BLOB, 128, table))
    blob = torch.arange(3.0).numpy().tobytes().ljust(64, b"\0") + torch.tensor([7.0]).numpy().tobytes()
    members = [("model/version", b"3"), ("model/extra/literals.safetensors", literals)]
    whole = archive.write_single_file(code, BLOB, [blob.ljust(128, b"\0")], 128, tmp_path / "expected.pt2")
    assert len(whole.members) == len(members) + 1
    return LocalArtifact.from_files(replace(config, single_file=whole), code, weights)


def test_the_single_file_is_the_one_the_config_names(artifact: LocalArtifact, tmp_path: Path) -> None:
    out = tmp_path / "out" / "model.pt2"
    out.parent.mkdir()
    written = write_model(artifact, out)
    assert written == artifact.config.single_file
    assert out.read_bytes() == (tmp_path / "expected.pt2").read_bytes()
    assert list(out.parent.iterdir()) == [out]


def test_another_result_is_not_written(artifact: LocalArtifact, tmp_path: Path) -> None:
    save_file({"w": torch.arange(3.0) + 1}, artifact.weights)
    out = tmp_path / "model.pt2"
    out.write_bytes(b"the one before")
    with pytest.raises(DigestMismatch, match="the artifact's config says"):
        write_model(artifact, out)
    assert out.read_bytes() == b"the one before"
    assert not list(tmp_path.glob(".*incomplete"))


def test_a_place_that_cannot_be_written_is_named(artifact: LocalArtifact, tmp_path: Path) -> None:
    with pytest.raises(HomeUnusable, match="Choose another path") as caught:
        write_model(artifact, tmp_path / "absent" / "model.pt2")
    assert caught.value.where == str(tmp_path / "absent" / "model.pt2")
    (tmp_path / "file").touch()
    with pytest.raises(HomeUnusable, match="Not a directory"):
        write_model(artifact, tmp_path / "file" / "model.pt2")
