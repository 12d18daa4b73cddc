"""Builds of exported programs: from the file of torch.export.save to an artifact that computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch
from torch import nn

from pt2hub.archive.exported_programs import split_program
from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.errors import (
    BadProgram,
    DimensionSpecialised,
    InputRefused,
    NondeterministicModel,
    ProgramNewer,
    WeightsMismatch,
)
from pt2hub_workers.inside import sources
from pt2hub_workers.inside.builds.export import adapter, eager
from pt2hub_workers.inside.builds.export.inputs import make_inputs, make_points
from pt2hub_workers.inside.builds.verify.golden import make_golden
from pt2hub_workers.inside.sources.source_files import SourceFiles
from support.programs import SIZE, Everything, changed, edited, members, save, save_everything

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.publishing.spec import Spec
    from support.workbench import Workbench

ANY = "sha256:" + 64 * "0"


def document(**fields: Any) -> dict[str, Any]:
    """A spec that calls `Everything`."""
    return {
        "model": "tiny/program",
        "source": {"program": ANY},
        "weights": ANY,
        "inputs": [
            {"name": "ids", "shape": ["batch"], "dtype": "int64", "generate": {"randint": {"high": 16}}},
            {"name": "x", "shape": ["batch", SIZE], "generate": {"normal": {}}},
        ],
        "dims": {"batch": {"min": 1, "max": 16, "example": 2}},
        "measure": {"torch_compile": False, "processes": 1},
        **fields,
    }


def one_input(shape: list[Any]) -> dict[str, Any]:
    return document(inputs=[{"name": "input", "shape": shape, "generate": {"normal": {}}}], dims={})


def parts_of(source: Path) -> dict[str, Path]:
    """A saved program's two files, as the workbench takes them."""
    program, weights = source.with_suffix(".program"), source.with_suffix(".safetensors")
    split_program(source, program, weights)
    return {"source": program, "weights": weights}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return parts_of(save_everything(tmp_path_factory.mktemp("saved") / "first.pt2"))


@pytest.fixture(scope="module")
def built(bench: Workbench, files: dict[str, Path]) -> dict[str, Any]:
    return bench.build(document(), **files)


def loaded(parts: dict[str, Any]) -> Any:
    config = decode(ArtifactConfig, parts["config"])
    return load_artifact(
        LocalArtifact.from_files(config, Path(parts["code_path"]), Path(parts["weights_path"]))
    )


def assert_computes(parts: dict[str, Any], seed: int) -> None:
    model, ids, x = Everything(seed).eval(), torch.randint(16, (5,)), torch.randn(5, SIZE)
    found, expected = loaded(parts)(ids, x), model(ids, x)
    for name in ("scores", "hidden"):
        torch.testing.assert_close(found[name], expected[name].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.compiles
def test_an_artifact_of_a_program_computes_what_the_exported_model_does(
    built: dict[str, Any], files: dict[str, Path]
) -> None:
    assert_computes(built, seed=0)
    assert built["verification"]["result"] == "passed"
    assert Path(built["weights_path"]).read_bytes() == files["weights"].read_bytes()
    table = {item["fqn"]: item["source"] for item in built["config"]["constants"]["table"]}
    assert table["head.weight"] == table["narrow"] == table["scale"] == "weights"
    assert table["steps"] == "extra"
    assert "table.weight" not in table


@pytest.mark.compiles
def test_a_retrained_program_reuses_the_code_and_starts_no_compiler(
    bench: Workbench, built: dict[str, Any], files: dict[str, Path], tmp_path: Path
) -> None:
    other = parts_of(save_everything(tmp_path / "second.pt2", seed=7))
    assert other["source"].read_bytes() == files["source"].read_bytes()
    reuse = {"code": built["code_path"], "config": built["config"], "artifact": "sha256:first"}

    parts = bench.build(document(), reuse=reuse, **other)

    assert parts["key"]["digest"] == built["key"]["digest"]
    assert parts["compiler_processes"] == []
    assert built["compiler_processes"] != []
    assert_computes(parts, seed=7)


def module_of(spec: Spec, files: dict[str, Path], scratch: Path) -> nn.Module:
    given = SourceFiles((), files["source"], files["weights"], scratch, "cpu", spec)
    return adapter.adapt_model(sources.build_model(spec.source, given), spec)


def test_the_float64_reference_is_a_copy_and_leaves_the_program_as_it_was(
    files: dict[str, Path], tmp_path: Path
) -> None:
    spec = _spec(document())
    module = module_of(spec, files, tmp_path)
    chosen = make_points(spec, {"batch": 16})
    inputs = {point.label: make_inputs(spec, point, {}) for point in chosen}

    golden = make_golden(module, chosen, inputs)

    assert module.get_parameter("scale").dtype == torch.float32
    assert golden.notes == ()
    (single, _), (double, _) = golden.single["example.0"], golden.double["example.0"]
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert torch.allclose(single.double(), double, rtol=1e-4, atol=1e-5)
    assert not list(tmp_path.glob("*.pt2"))  # the joined file is gone


def test_a_graph_that_fixes_a_dtype_has_no_float64_reference_and_says_so(tmp_path: Path) -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(SIZE, 2)

        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # the spec's name
            return self.layer(input.to(torch.float32))

    parts = parts_of(save(Fixed().eval(), tmp_path / "fixed.pt2", (torch.randn(2, SIZE),)))
    spec = _spec(one_input([2, SIZE]))
    module = module_of(spec, parts, tmp_path)
    chosen = make_points(spec, {})
    golden = make_golden(module, chosen, {point.label: make_inputs(spec, point, {}) for point in chosen})
    assert golden.double == {}
    assert "no float64 reference" in golden.notes[0]


def test_tied_weights_stay_one_when_the_program_is_converted(files: dict[str, Path], tmp_path: Path) -> None:
    module = module_of(_spec(document()), files, tmp_path).to(torch.bfloat16)
    table, head = (module.get_parameter(f"{name}.weight") for name in ("table", "head"))
    assert table.dtype == torch.bfloat16
    assert table.data_ptr() == head.data_ptr()


def test_a_program_builds_in_another_dtype(tmp_path: Path) -> None:
    class Plain(nn.Sequential):
        pass

    torch.manual_seed(0)
    plain = Plain(nn.Linear(SIZE, 4), nn.LayerNorm(4), nn.GELU(), nn.Dropout(0.5)).eval()
    parts = parts_of(save(plain, tmp_path / "plain.pt2", (torch.randn(2, SIZE),)))
    module = module_of(_spec(one_input([2, SIZE])), parts, tmp_path).to(torch.bfloat16)
    x = torch.randn(2, SIZE)
    found = eager.run(module, {"input": x.bfloat16()})
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.float(), plain(x), atol=0.05)


def test_a_program_that_was_exported_on_a_gpu_is_built_for_the_cpu(tmp_path: Path) -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(SIZE, SIZE)
            self.shift = torch.ones(SIZE)

        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # the spec's name
            made = torch.arange(SIZE, device="cpu") + torch.zeros(SIZE).to(input.device)
            return self.layer(input) * torch.tensor([2.0]) + made + self.shift

    model, x = Placed().eval(), torch.randn(2, SIZE)
    parts = parts_of(save(model, tmp_path / "placed.pt2", (x,)))
    data = next(data for name, data in members(parts["source"]).items() if name.endswith("model.json"))
    on_gpu = data.replace(b'{"type":"cpu","index":null}', b'{"type":"cuda","index":0}')
    assert on_gpu.count(b"cuda") > 5
    source = changed(parts["source"], tmp_path / "gpu.program", **{"model.json": on_gpu})

    module = module_of(_spec(one_input([2, SIZE])), {**parts, "source": source}, tmp_path)

    assert torch.equal(module(input=x), model(x))


def _spec(given: dict[str, Any]) -> Spec:
    from pt2hub.domain.publishing.spec import Spec

    return Spec.model_validate(given)


def test_a_program_exported_in_training_mode_is_refused(bench: Workbench, tmp_path: Path) -> None:
    source = save(
        nn.Sequential(nn.Linear(SIZE, 32), nn.Dropout(0.5)).train(),
        tmp_path / "train.pt2",
        (torch.randn(2, SIZE),),
    )
    with pytest.raises(NondeterministicModel) as caught:
        bench.build(one_input([2, SIZE]), **parts_of(source))
    assert "eval" in str(caught.value.hint)


def version(text: str) -> Callable[[Any], None]:
    def edit(program: Any) -> None:
        program["torch_version"] = text

    return edit


def schema(major: int) -> Callable[[Any], None]:
    def edit(program: Any) -> None:
        program["schema_version"]["major"] = major

    return edit


@pytest.mark.parametrize(
    ("edit", "error", "message"),
    [
        (version("2.99.1+cu130"), ProgramNewer, "exported with torch 2.99.1"),
        (version("3.0.0"), ProgramNewer, "exported with torch 3.0.0"),
        (schema(9), ProgramNewer, "schema 9"),
        (schema(7), BadProgram, "schema 7"),
    ],
)
def test_programs_of_other_releases_are_refused_before_they_are_loaded(
    bench: Workbench,
    files: dict[str, Path],
    tmp_path: Path,
    edit: Callable[[Any], None],
    error: type[ProgramNewer],
    message: str,
) -> None:
    source = edited(files["source"], tmp_path / "edited", "model.json", edit)
    with pytest.raises(error, match=message) as caught:
        bench.build(document(), source=source, weights=files["weights"])
    assert caught.value.where == "source.program"
    assert torch.__version__ in caught.value.message


def test_programs_of_older_releases_are_taken(files: dict[str, Path], tmp_path: Path) -> None:
    source = edited(files["source"], tmp_path / "edited", "model.json", version("2.11.0+cpu"))
    module = module_of(_spec(document()), {**files, "source": source}, tmp_path)
    assert set(module.state_dict()) == {*safetensors.torch.load_file(files["weights"]), "table.weight"}


def unknown_operator(program: Any) -> None:
    program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.mylib.fuse.default"


def broken_graph(program: Any) -> None:
    program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.no_such_operator.default"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (unknown_operator, "operators not found on this worker: mylib::fuse"),
        (broken_graph, "cannot read the program"),
    ],
)
def test_programs_that_torch_cannot_read_are_refused_in_words(
    bench: Workbench, files: dict[str, Path], tmp_path: Path, edit: Callable[[Any], None], message: str
) -> None:
    source = edited(files["source"], tmp_path / "edited", "model.json", edit)
    with pytest.raises(BadProgram, match=message):
        bench.build(document(), source=source, weights=files["weights"])


def test_weights_of_another_model_are_refused(
    bench: Workbench, files: dict[str, Path], tmp_path: Path
) -> None:
    state = {f"module.{k}": v for k, v in safetensors.torch.load_file(files["weights"]).items()}
    path = tmp_path / "other.safetensors"
    safetensors.torch.save_file(state, path)
    with pytest.raises(WeightsMismatch) as caught:
        bench.build(document(), source=files["source"], weights=path)
    assert "begins with module." in str(caught.value.hint)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"dims": {"batch": {"min": 1, "max": 640, "example": 2}}}, DimensionSpecialised),
        ({"inputs": document()["inputs"][:1]}, InputRefused),
    ],
)
def test_a_spec_that_calls_the_program_otherwise_is_refused_before_it_is_loaded(
    bench: Workbench, files: dict[str, Path], fields: dict[str, Any], error: type[InputRefused]
) -> None:
    with pytest.raises(error):
        bench.build(document(**fields), **files)
    assert bench.steps[-1:] != ["compile"]
