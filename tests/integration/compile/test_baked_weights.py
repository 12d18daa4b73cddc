"""Weights that the compiler freezes into the code: folded, packed, proven at their own values, and never exchanged."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._inductor  # for its stock loader

from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.client.artifacts.single_file import write_model
from pt2hub.domain.artifacts import NO_TENSORS, ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import digest_file
from pt2hub.errors import ArtifactWrong, BadCall, WeightsMismatch
from pt2hub_workers.inside.builds.compilation import Compilation
from support.tiny_models import Classifier, Nested
from support.workbench import Workbench, tiny_spec

if TYPE_CHECKING:
    from pt2hub.client.artifacts.loader import LoadedModel

pytestmark = pytest.mark.compiles


def _spec(seed: int = 3, **fields: Any) -> dict[str, Any]:
    return tiny_spec(
        "Classifier",
        source={"factory": "support.tiny_models:Classifier", "kwargs": {}, "seed": seed},
        inputs=[{"name": "image", "shape": ["batch", 3, 10, 10], "generate": {"normal": {}}}],
        **{"compile": {"weights": "baked"}, **fields},
    )


@pytest.fixture(scope="module")
def baked(bench: Workbench) -> dict[str, Any]:
    return bench.build(_spec())


@pytest.fixture(scope="module")
def artifact(baked: dict[str, Any]) -> LocalArtifact:
    config = decode(ArtifactConfig, baked["config"])
    return LocalArtifact.from_files(config, Path(baked["code_path"]), Path(baked["weights_path"]))


@pytest.fixture(scope="module")
def loaded(artifact: LocalArtifact) -> LoadedModel:
    return load_artifact(artifact)


def _model() -> Classifier:
    torch.manual_seed(3)
    return Classifier().eval().requires_grad_(False)


class _Keyed(Compilation):
    """A build that ends once it has its key."""

    def make_code(self) -> Any:
        raise KeyboardInterrupt


def _key_of(bench: Workbench, spec: dict[str, Any], **given: Any) -> dict[str, Any]:
    with pytest.raises(KeyboardInterrupt):
        bench.build(spec, kind=_Keyed, **given)
    return bench.keys[-1][1]


@pytest.mark.parametrize("batch", [1, 2, 7, 16])
def test_the_frozen_code_computes_what_the_model_does_at_every_size(loaded: LoadedModel, batch: int) -> None:
    image = torch.randn(batch, 3, 10, 10)

    torch.testing.assert_close(loaded(image), _model()(image), rtol=1e-5, atol=1e-5)


def test_weights_are_folded_and_packed_into_the_code_layer_and_the_weights_layer_is_empty(
    baked: dict[str, Any],
) -> None:
    code = torch._C._aoti.AOTIModelPackageLoader(baked["code_path"], "model", False, 1, -1)

    names = code.get_constant_fqns()
    assert any(name.startswith("_frozen_param") for name in names)
    assert not any("norm" in name for name in names)
    assert Path(baked["weights_path"]).read_bytes() == NO_TENSORS
    constants = decode(ArtifactConfig, baked["config"]).constants
    assert (constants.baked, constants.table, constants.blob_member) == (True, (), "")


def test_it_is_proven_at_its_own_weights_and_the_report_says_so(baked: dict[str, Any]) -> None:
    report = baked["verification"]

    assert report["result"] == "passed"
    assert {row["group"] for row in report["comparisons"]} == {None}
    assert {row["threads"] for row in report["comparisons"]} >= {1, 8}
    assert all(row["signal"] >= 4 * row["allowed"] > 0 for row in report["comparisons"])
    assert any(note.startswith("weights are baked: ") for note in report["notes"])


def test_other_weights_are_refused_and_the_model_goes_on_as_before(loaded: LoadedModel) -> None:
    image = torch.randn(2, 3, 10, 10)
    before = loaded(image)

    with pytest.raises(WeightsMismatch, match="baked into the compiled code") as refused:
        loaded.swap_constants(_model().state_dict())
    loaded.reset()

    assert "weights: split" in refused.value.hint
    assert loaded.constants() == {}
    assert torch.equal(loaded(image), before)
    assert "baked" in str(loaded)


def test_the_single_file_is_the_code_layer_and_the_stock_loader_runs_it(
    artifact: LocalArtifact, tmp_path: Path
) -> None:
    out = tmp_path / "model.pt2"

    made = write_model(artifact, out)

    assert made == artifact.config.single_file
    assert made.digest == digest_file(artifact.code)
    stock, image = torch._inductor.aoti_load_package(str(out)), torch.randn(5, 3, 10, 10)
    torch.testing.assert_close(stock(image), _model()(image), rtol=1e-5, atol=1e-5)


def test_the_same_weights_take_the_code_without_a_compiler(bench: Workbench, baked: dict[str, Any]) -> None:
    reuse = {"code": baked["code_path"], "config": baked["config"], "artifact": "sha256:first"}

    parts = bench.build(_spec(checks={"tolerance": 0.002}), reuse=reuse)

    assert parts["key"] == baked["key"]
    assert parts["compiler_processes"] == []
    assert parts["single_file"] == baked["single_file"]
    assert Path(parts["weights_path"]).read_bytes() == NO_TENSORS


def test_code_that_holds_other_weights_than_the_versions_has_another_key_and_is_not_published(
    bench: Workbench, baked: dict[str, Any]
) -> None:
    stale = {"code": baked["code_path"], "config": copy.deepcopy(baked["config"]), "artifact": "sha256:stale"}

    with pytest.raises(ArtifactWrong, match="is off by"):
        bench.build(_spec(seed=99), reuse=stale)

    own, other = baked["key"]["fields"], bench.keys[-1][1]["fields"]
    assert {name for name in own if own[name] != other[name]} == {"baked"}


def test_a_key_holds_the_weights_only_if_the_spec_or_the_target_bakes_them(
    bench: Workbench, baked: dict[str, Any]
) -> None:
    split = _key_of(bench, _spec(compile={}))
    by_target = _key_of(bench, _spec(compile={}), request={"weights": "baked"})

    assert "baked" not in split["fields"]
    assert by_target == baked["key"]


def test_a_dtype_a_layout_options_and_baked_weights_go_together_on_one_target(bench: Workbench) -> None:
    spec = tiny_spec(
        "Nested",
        inputs=[
            {"name": "batch.image", "shape": ["batch", 3, 10, 10], "generate": {"normal": {}}},
            {"name": "batch.scale", "shape": ["batch", 1], "generate": {"uniform": {"low": 1, "high": 2}}},
        ],
        compile={"options": {"epilogue_fusion": True, "shape_padding": False}},
        measure={"torch_compile": False, "processes": 1},
    )
    request = {
        "dtype": "bfloat16",
        "memory_format": "channels_last",
        "weights": "baked",
        "options": {"epilogue_fusion": False},
    }
    parts = bench.build(spec, request=request)

    config = decode(ArtifactConfig, parts["config"])
    loaded = load_artifact(
        LocalArtifact.from_files(config, Path(parts["code_path"]), Path(parts["weights_path"]))
    )
    torch.manual_seed(3)
    model = Nested().eval().to(torch.bfloat16)
    image = torch.randn(4, 3, 10, 10).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    batch = {"image": image, "scale": torch.full((4, 1), 1.5, dtype=torch.bfloat16)}
    torch.testing.assert_close(loaded(batch)["scores"], model(batch)["scores"].detach(), rtol=0.05, atol=0.05)
    with pytest.raises(BadCall, match="channels_last"):
        loaded({**batch, "image": image.contiguous()})
    assert (config.dtype, config.constants.baked) == ("bfloat16", True)
    options = parts["key"]["fields"]["options"]
    assert (options["epilogue_fusion"], options["shape_padding"], options["freezing"]) == (False, False, True)
