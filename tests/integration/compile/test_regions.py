"""Builds by regions: each block is compiled once, and the artifact is one like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._inductor import aoti_load_package

from pt2hub import archive, errors
from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub_workers.inside.builds.compilation import Compilation
from pt2hub_workers.inside.operations import files
from support import region_models
from support.region_models import Stack, deep
from support.workbench import Workbench, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.client.artifacts.loader import LoadedModel
    from pt2hub_workers.inside.builds.compile.package import PackedArtifact
    from pt2hub_workers.inside.builds.regions.choice import Division

pytestmark = pytest.mark.compiles
MODELS = "support.region_models"


def _spec(kind: str, regions: Any, debug: Sequence[str] = (), **fields: Any) -> dict[str, Any]:
    return tiny_spec(
        source={"factory": f"{MODELS}:{kind}", "kwargs": {}, "seed": 3},
        compile={"regions": regions, "debug": list(debug)},
        **fields,
    )


STACK = _spec(
    "Stack",
    ["Block"],
    debug=["graph"],
    model="stack",
    inputs=[
        {
            "name": "ids",
            "shape": ["batch", "length"],
            "dtype": "int64",
            "generate": {"randint": {"low": 0, "high": 32}},
        }
    ],
    dims={
        "batch": {"min": 1, "max": 8, "example": 2},
        "length": {"min": 2, "max": 12, "example": 5},
    },
)


@pytest.fixture(scope="module")
def stack(bench: Workbench) -> dict[str, Any]:
    return bench.build(STACK)


@pytest.fixture(scope="module")
def config(stack: dict[str, Any]) -> ArtifactConfig:
    return decode(ArtifactConfig, stack["config"])


def _load(parts: dict[str, Any]) -> LoadedModel:
    config = decode(ArtifactConfig, parts["config"])
    return load_artifact(
        LocalArtifact.from_files(config, Path(parts["code_path"]), Path(parts["weights_path"]))
    )


def _model(seed: int = 3) -> Stack:
    torch.manual_seed(seed)
    return Stack().eval().requires_grad_(False)


def test_equal_blocks_are_one_part_and_the_rest_is_compiled_around_them(config: ArtifactConfig) -> None:
    calls = [(region.modules, region.calls) for region in config.regions]

    assert calls == [((), 1), (tuple(f"blocks.{n}" for n in range(6)), 6), ((), 1)]
    names = {item.fqn for item in config.regions[1].constants.table}
    assert {"norm.weight", "mix.weight", "out.bias"} < names
    assert len({item.fqn for item in config.constants.table if item.fqn.startswith("blocks.")}) >= 6 * 6


def test_kernels_of_a_region_hold_the_operations_of_every_call(stack: dict[str, Any]) -> None:
    document = json.loads(Path(stack["code_path"]).with_name("fusion.json").read_text())

    graph = {node["name"]: node["target"] for node in document["graph"]}
    held = [graph[name] for kernel in document["kernels"] for name in kernel["operations"]]
    assert held.count("aten.tanh.default") == 6
    assert {kernel["calls"] for kernel in document["kernels"]} >= {1, 6}


def test_debug_logs_name_the_part_that_they_are_of(stack: dict[str, Any]) -> None:
    log = Path(stack["code_path"]).parent / Path(files.DEBUG_LOGS["graph"]).name
    text = log.read_text()
    marks = [line for line in text.splitlines() if line.startswith("===== pt2hub")]
    assert len(marks) == 3
    assert marks[1] == "===== pt2hub: part 2 of 3: blocks.0 ... blocks.5 (6 calls) ====="
    assert text.count("AFTER POST GRAD") == 3


@pytest.mark.parametrize(("batch", "length"), [(1, 2), (2, 5), (7, 12)])
def test_it_computes_what_the_model_does_at_every_size(
    stack: dict[str, Any], batch: int, length: int
) -> None:
    ids = torch.randint(0, 32, (batch, length))

    torch.testing.assert_close(_load(stack)(ids), _model()(ids), rtol=1e-5, atol=1e-5)


def test_each_call_has_its_own_weights_and_follows_others(stack: dict[str, Any]) -> None:
    loaded, other = _load(stack), _model(4)
    ids = torch.randint(0, 32, (3, 4))

    loaded.swap_constants(other.state_dict())

    torch.testing.assert_close(loaded(ids), other(ids), rtol=1e-5, atol=1e-5)


def test_the_single_file_loads_with_stock_pytorch(stack: dict[str, Any], tmp_path: Path) -> None:
    config, code = decode(ArtifactConfig, stack["config"]), Path(stack["code_path"])
    constants = config.constants
    literals = archive.read_literals(constants, code)
    chunks = archive.blob_chunks(constants, Path(stack["weights_path"]), literals)
    file = tmp_path / "model.pt2"
    single = archive.write_single_file(code, constants.blob_member, chunks, constants.blob_size, file)
    ids = torch.randint(0, 32, (2, 6))

    assert single.digest == config.single_file.digest
    torch.testing.assert_close(aoti_load_package(str(file))(ids), _model()(ids), rtol=1e-5, atol=1e-5)


def test_other_weights_reuse_the_whole_code(bench: Workbench, stack: dict[str, Any], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = tmp_path / "other.safetensors"
    state = _model(5).state_dict()
    del state["head.weight"]
    save_file(state, weights)
    reuse = {"artifact": "earlier", "code": stack["code_path"], "config": stack["config"]}
    parts = bench.build(STACK, weights=weights, reuse=reuse)
    ids = torch.randint(0, 32, (2, 6))

    assert parts["key"] == stack["key"]
    torch.testing.assert_close(_load(parts)(ids), _model(5)(ids), rtol=1e-5, atol=1e-5)


def test_another_model_takes_the_code_of_equal_blocks(bench: Workbench) -> None:
    first = bench.build(_spec("deep", "auto"))
    known = {
        region["key"]["digest"]: {
            "code": first["code_path"],
            "region": region,
            "artifact": "sha256:" + "1" * 64,
        }
        for region in first["regions"]
    }
    programs = len(first["compiler_processes"])
    spec = _spec("deep", "auto", model="deeper")
    spec["source"]["kwargs"] = {"blocks": 110}

    second = bench.build(spec, regions=known)

    assert [region["calls"] for region in first["regions"]] == [100]
    assert [region["calls"] for region in second["regions"]] == [110]
    assert second["regions"][0]["code_reused_from"] == "sha256:" + "1" * 64
    assert programs > 0
    torch.manual_seed(3)
    model, x = deep(110).eval(), torch.randn(5, 8)
    torch.testing.assert_close(_load(second)(x), model(x), rtol=1e-5, atol=1e-5)


class _WronglyBound(Compilation):
    """Gives two calls each other's weights."""

    def _compile_regions(self, division: Division) -> Callable[[], PackedArtifact] | None:
        one, other = (item for item in division.cut.segments if item.block and item.block.path in _SWAPPED)
        one.constants, other.constants = other.constants, one.constants
        return super()._compile_regions(division)


_SWAPPED = ("blocks.2", "blocks.3")


def test_weights_of_another_call_are_caught(bench: Workbench) -> None:
    with pytest.raises(errors.ArtifactWrong):
        bench.build(STACK, kind=_WronglyBound)


def test_blocks_keep_their_states_apart(bench: Workbench) -> None:
    loaded = _load(bench.build(_spec("counters", ["Counting"])))
    x = torch.randn(2, 8)

    first, second = loaded(x), loaded(x)

    assert not torch.equal(first, second)
    assert [float(loaded.constants()[f"layers.{n}.calls"]) for n in range(4)] == [2.0] * 4
    loaded.reset()
    torch.testing.assert_close(loaded(x), first)


@pytest.mark.parametrize(
    ("model", "regions", "said"),
    [
        ("deep", ["Plane"], "Unknown region 'Plane'"),
        ("different", ["Counting"], "The regions are all different: layers.0 and layers.2 differ in"),
        ("different", ["layers.1"], "The region layers.1 is called once"),
    ],
)
def test_wrong_regions_say_what_is_wrong(bench: Workbench, model: str, regions: Any, said: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        bench.build(_spec(model, regions))

    assert said in caught.value.message
    assert caught.value.where == "compile.regions"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("model", "regions", "shape"),
    [("bottlenecks", ["Linear"], ["batch", 8]), ("Halving", ["Plain"], ["batch", 16])],
)
def test_parts_whose_graphs_differ_in_shapes_only_have_code_of_their_own(
    bench: Workbench, model: str, regions: Any, shape: Any
) -> None:
    inputs = [{"name": "x", "shape": shape, "generate": {"normal": {}}}]
    parts = bench.build(_spec(model, regions, model=model.lower(), inputs=inputs))

    called = [region for region in parts["regions"] if region["modules"]]
    assert [region["calls"] for region in called] == [2, 2]
    with archive.open_archive(Path(parts["code_path"])) as layer:
        one, other = (layer.read(region["members"][0]) for region in called)
    assert one != other
    torch.manual_seed(3)
    eager = getattr(region_models, model)().eval()
    x = torch.randn(3, shape[1])
    torch.testing.assert_close(_load(parts)(x), eager(x), rtol=1e-5, atol=1e-5)


def test_auto_leaves_models_whole_where_regions_save_little(bench: Workbench) -> None:
    spec = _spec("deep", "auto")
    spec["source"]["kwargs"] = {"blocks": 3}

    assert bench.build(spec)["regions"] == []
