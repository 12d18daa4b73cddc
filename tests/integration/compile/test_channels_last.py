"""Weights of convolutions that the compiled code wants in channels_last: split, rebuilt, loaded, exchanged and reused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._inductor  # for its stock loader

from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.client.artifacts.single_file import write_model
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub_workers.inside.builds.compile.weights import write_weights
from pt2hub_workers.inside.builds.regions.composite import check_layouts
from pt2hub_workers.inside.builds.regions.errors import RegionsImpossible
from support import region_models
from support.artifacts import a_constant
from support.tiny_models import Images
from support.workbench import Workbench, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.compiles
SPEC = tiny_spec(
    "Images",
    inputs=[{"name": "image", "shape": ["batch", 3, 10, 10], "generate": {"normal": {}}}],
    compile={"options": {"force_layout_optimization": True}},
)


@pytest.fixture(scope="module")
def built(bench: Workbench) -> dict[str, Any]:
    return bench.build(SPEC)


def local(parts: Mapping[str, Any]) -> LocalArtifact:
    config = decode(ArtifactConfig, parts["config"])
    return LocalArtifact.from_files(config, Path(parts["code_path"]), Path(parts["weights_path"]))


def model(seed: int = 3) -> Images:
    torch.manual_seed(seed)
    return Images().eval().requires_grad_(False)


def check(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-5)
        assert found[name].stride() == value.stride()


def test_the_code_declares_the_layout_and_the_weights_file_keeps_its_own(built: dict[str, Any]) -> None:
    table = decode(ArtifactConfig, built["config"]).constants.table
    strides = {item.fqn: item.stride for item in table if len(item.shape) == 4}

    assert strides == {
        "first.weight": (27, 1, 9, 3),
        "point.weight": (8, 1, 1, 1),
        "depth.weight": (9, 9, 3, 1),
        "up.weight": (16, 1, 8, 4),
        "_tensor_constant0": (72, 1, 24, 8),  # the filter
    }
    assert [item.source for item in table if item.fqn == "_tensor_constant0"] == ["extra"]
    assert built["verification"]["result"] == "passed"


@pytest.mark.parametrize("batch", [1, 5])
def test_a_loaded_artifact_and_the_single_file_compute_what_the_model_does(
    built: dict[str, Any], tmp_path: Path, batch: int
) -> None:
    artifact, image = local(built), torch.randn(batch, 3, 10, 10)
    made = write_model(artifact, tmp_path / "model.pt2")

    expected = model()(image)
    check(load_artifact(artifact)(image), expected)
    assert made == artifact.config.single_file
    check(torch._inductor.aoti_load_package(str(tmp_path / "model.pt2"))(image), expected)


def test_weights_are_exchanged_in_their_usual_layout(built: dict[str, Any]) -> None:
    loaded, other, image = load_artifact(local(built)), model(4), torch.randn(2, 3, 10, 10)
    other.filter = model().filter  # a literal of the code

    loaded.swap_constants(other.state_dict())

    check(loaded(image), other(image))
    kept = loaded.constants()["first.weight"]
    assert torch.equal(kept, other.first.weight)


def test_retrained_weights_take_the_code(bench: Workbench, built: dict[str, Any], tmp_path: Path) -> None:
    other, image = model(4), torch.randn(2, 3, 10, 10)
    other.filter = model().filter
    write_weights(other, tmp_path / "weights.safetensors")
    reuse = {"code": built["code_path"], "config": built["config"], "artifact": "sha256:first"}

    parts = bench.build(SPEC, reuse=reuse, weights=tmp_path / "weights.safetensors")

    assert parts["compiler_processes"] == []
    check(load_artifact(local(parts))(image), other(image))


def test_regions_read_their_weights_in_that_layout_too(bench: Workbench) -> None:
    source = {"factory": "support.region_models:Images", "kwargs": {}, "seed": 3}
    inputs = [{"name": "image", "shape": ["batch", 4, 6, 6], "generate": {"normal": {}}}]
    regions = {"regions": ["ImageBlock"], "options": {"force_layout_optimization": True}}

    parts = bench.build(tiny_spec("Images", source=source, inputs=inputs, compile=regions))

    table = decode(ArtifactConfig, parts["config"]).constants.table
    assert len(parts["regions"]) == 1
    assert {item.stride for item in table if len(item.shape) == 4} == {(36, 1, 12, 4)}
    torch.manual_seed(3)
    image = torch.randn(3, 4, 6, 6)
    torch.manual_seed(3)
    expected = region_models.Images().eval()(image)
    torch.testing.assert_close(load_artifact(local(parts))(image), expected, rtol=1e-5, atol=1e-5)


def test_a_weight_that_two_regions_read_in_different_layouts_is_refused() -> None:
    one = a_constant("w", (2, 3, 4, 5))
    check_layouts([one, replace(one, offset=4096)])

    with pytest.raises(RegionsImpossible, match="two parts read w in different layouts"):
        check_layouts([one, replace(one, stride=(60, 1, 15, 3))])
