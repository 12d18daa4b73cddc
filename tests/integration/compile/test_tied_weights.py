"""An uploaded file may name a tied tensor as it likes: the artifact is built, loads, and follows other weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub_workers.inside.builds.compilation import Compilation
from support.tiny_models import Tied
from support.workbench import Workbench, tiny_spec

pytestmark = pytest.mark.compiles

SPEC = tiny_spec(
    "Tied",
    inputs=[{"name": "ids", "shape": ["batch", 5], "dtype": "int64", "generate": {"randint": {"high": 20}}}],
)


def _model(seed: int) -> Tied:
    torch.manual_seed(seed)
    return Tied().eval().requires_grad_(False)


def _file(folder: Path, *names: str) -> Path:
    state, path = _model(1).state_dict(), folder / "weights.safetensors"
    safetensors.torch.save_file({name: state[name].clone() for name in names}, path)
    return path


class _Keyed(Compilation):
    """A build that ends once it has its key."""

    def make_code(self) -> Any:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def seeded(bench: Workbench) -> dict[str, Any]:
    return bench.build(SPEC)


def test_a_file_with_the_first_of_two_names_takes_the_code_of_one_with_the_last(
    bench: Workbench, seeded: dict[str, Any], tmp_path: Path
) -> None:
    reuse = {"artifact": "earlier", "code": seeded["code_path"], "config": seeded["config"]}
    parts = bench.build(SPEC, weights=_file(tmp_path, "table.weight"), reuse=reuse)

    config = decode(ArtifactConfig, parts["config"])
    assert parts["key"] == seeded["key"]
    assert [(item.fqn, item.stored) for item in config.constants.table] == [("head.weight", "table.weight")]
    loaded = load_artifact(
        LocalArtifact.from_files(config, Path(parts["code_path"]), Path(parts["weights_path"]))
    )
    ids, other = torch.randint(0, 20, (3, 5)), _model(2)
    torch.testing.assert_close(loaded(ids), _model(1)(ids), rtol=1e-5, atol=1e-5)
    loaded.swap_constants({"table.weight": other.table.weight})
    torch.testing.assert_close(loaded(ids), other(ids), rtol=1e-5, atol=1e-5)
    assert {row["group"] for row in parts["verification"]["comparisons"]} > {None, "everything"}


def test_every_file_with_the_weights_has_the_key_of_the_seeded_source(
    bench: Workbench, seeded: dict[str, Any], tmp_path: Path
) -> None:
    for number, names in enumerate([("head.weight",), ("table.weight",), ("head.weight", "table.weight")]):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(KeyboardInterrupt):
            bench.build(SPEC, weights=_file(tmp_path / str(number), *names), kind=_Keyed)
        assert bench.keys[-1][1]["digest"] == seeded["key"]["digest"]
