"""What the verification must not believe: each fault was published as proven once; each has an innocent twin that passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pt2hub import errors
from pt2hub.archive.exported_programs import split_program
from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub_workers.inside.builds.compilation import Compilation
from support import tiny_models
from support.programs import save
from support.workbench import Workbench, tiny_spec

TWO = {
    "inputs": [
        {"name": "x", "shape": ["batch", 8], "generate": {"normal": {}}},
        {"name": "spare", "shape": ["batch", 8], "generate": {"normal": {}}},
    ]
}


@pytest.fixture(scope="module")
def innocent(bench: Workbench) -> dict[str, Any]:
    return bench.build(tiny_spec("Innocent", **TWO))


@pytest.mark.parametrize(
    ("model", "kind", "said", "hint"),
    [
        (
            "Seeded",
            errors.RandomOperators,
            "aten.rand_like at support/tiny_models.py:",
            "random:aten.rand_like",
        ),
        ("RightOnce", errors.HiddenState, "in a second call on the same inputs", "A call changes calls."),
        ("RightLater", errors.HiddenState, "after further calls", "buffer"),
        ("FirstBatch", errors.HiddenState, "called on other inputs first", "A call changes scale."),
        ("FirstBatchOfAll", errors.HiddenState, "called on other inputs first", "buffer"),
        ("OtherwiseExported", errors.ProgramDiffers, "run in eager mode", "is_exporting()"),
    ],
)
def test_a_model_that_no_artifact_can_be_right_about_is_refused_before_it_is_compiled(
    bench: Workbench, model: str, kind: type[errors.Pt2hubError], said: str, hint: str
) -> None:
    bench.events.clear()
    tiny_models.SEEN.clear()

    with pytest.raises(kind) as caught:
        bench.build(tiny_spec(model))

    assert said in caught.value.message
    assert hint in str(caught.value.hint)
    assert caught.value.where == "source"
    assert "compile" not in bench.steps


def test_a_float32_model_with_bfloat16_inputs_says_which_of_the_two_the_spec_should_change(
    bench: Workbench,
) -> None:
    inputs = [{"name": "x", "shape": ["batch", 8], "dtype": "bfloat16", "generate": {"normal": {}}}]

    with pytest.raises(errors.InputRefused) as caught:
        bench.build(tiny_spec(inputs=inputs))

    assert caught.value.where == "inputs.x.dtype"
    assert "Set dtype: float32 for inputs.x: the model's weights are float32" in str(caught.value.hint)
    assert "targets: [{target: auto, dtype: bfloat16}]" in str(caught.value.hint)


def program_of(path: Path, args: tuple[torch.Tensor, ...]) -> dict[str, Path]:
    source = save(tiny_models.Summed().eval(), path / "program.pt2", args)
    program, weights = path / "stripped.pt2", path / "weights.safetensors"
    split_program(source, program, weights)
    return {"source": program, "weights": weights}


def of_program(**fields: Any) -> dict[str, Any]:
    inputs = [{"name": name, "shape": [2, 8], "generate": {"normal": {}}} for name in ("x", "y")]
    digest = "sha256:" + "0" * 64
    return tiny_spec(source={"program": digest}, weights=digest, inputs=inputs, dims={}, **fields)


def test_a_program_that_was_exported_with_one_tensor_twice_is_refused(
    bench: Workbench, tmp_path: Path
) -> None:
    x = torch.randn(2, 8)

    with pytest.raises(errors.UnusedInput, match="never reads input 'x'") as caught:
        bench.build(of_program(), **program_of(tmp_path, (x, x)))

    assert caught.value.where == "inputs.x"
    assert "checks: {accept: ['unused:x']}" in str(caught.value.hint)


@pytest.mark.compiles
def test_a_program_that_was_exported_with_two_tensors_is_published(bench: Workbench, tmp_path: Path) -> None:
    parts = bench.build(of_program(), **program_of(tmp_path, (torch.randn(2, 8), torch.randn(2, 8))))

    x, y = torch.randn(2, 8), torch.randn(2, 8)
    torch.testing.assert_close(loaded(parts)(x, y), torch.cos(x) + torch.sin(y))


def loaded(parts: dict[str, Any]) -> Any:
    config = decode(ArtifactConfig, parts["config"])
    return load_artifact(
        LocalArtifact.from_files(config, Path(parts["code_path"]), Path(parts["weights_path"]))
    )


@pytest.mark.compiles
def test_what_only_looks_like_a_fault_is_published_and_said(innocent: dict[str, Any]) -> None:
    report = innocent["verification"]
    notes = " | ".join(report["notes"])

    assert report["result"] == "passed"
    assert "input spare is unused: the artifact takes it and ignores it, as the model does" in notes
    assert "a call of the model changes calls: Python values that the artifact does not have" in notes
    assert "the model writes to steps" in notes
    assert report["repeated"] is None  # a second call rightly differs, and was compared with eager's second


@pytest.mark.compiles
def test_sizes_between_are_tried_and_the_report_lists_them(innocent: dict[str, Any]) -> None:
    report = innocent["verification"]
    between = {row["point"] for row in report["comparisons"] if row["point"].startswith("between")}
    (note,) = (note for note in report["notes"] if note.startswith("sizes tried between"))

    assert len(between) >= 3
    sizes = {int(part) for part in note.replace(";", "").replace("batch=", "").split() if part.isdecimal()}
    assert sizes <= set(range(2, 16))
    assert any(size % 2 for size in sizes)
    document = innocent["golden"]["document"]
    assert {item["name"] for item in document["points"]} == {"example", "smallest", "largest", "between"}


@pytest.mark.compiles
def test_rounding_that_the_operations_explain_keeps_the_float64_reference(innocent: dict[str, Any]) -> None:
    rows = [row for row in innocent["verification"]["comparisons"] if row["output"] == 1 and not row["group"]]

    assert not any("no float64 reference" in note for note in innocent["verification"]["notes"])
    assert max(row["eager_error"] for row in rows) > 1e-3


class _WrongBetween(tiny_models.Mlp):
    """Off by one at every size but the three that were tried before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = torch.scalar_tensor(x.shape[0])
        return super().forward(x) + ((size - 1) * (size - 2) * (size - 16) != 0)


class _CompiledWrong(Compilation):
    """A compiler that makes no mistake at the smallest, the example's and the largest size."""

    def _compile_program(self, _: Any, *args: Any) -> None:
        batch = torch.export.Dim("batch", min=1, max=16)
        torch.manual_seed(3)  # the weights of the spec's seed
        wrong = torch.export.export(
            _WrongBetween().eval(), (torch.randn(2, 8),), dynamic_shapes=({0: batch},)
        )
        super()._compile_program(wrong, *args)


@pytest.mark.compiles
def test_code_that_is_wrong_at_sizes_between_is_caught(bench: Workbench) -> None:
    with pytest.raises(errors.ArtifactWrong, match=r"at between\.\d"):
        bench.build(tiny_spec(), kind=_CompiledWrong)


def test_a_drifted_source_is_found_before_anything_is_compiled(
    bench: Workbench, innocent: dict[str, Any]
) -> None:
    bench.events.clear()
    tiny_models.Innocent.forward, kept = _drifted, tiny_models.Innocent.forward  # type: ignore[method-assign]
    try:
        with pytest.raises(errors.SourceDrifted):
            bench.build(
                tiny_spec("Innocent", **TWO),
                golden=innocent["golden"],
                weights=Path(innocent["weights_path"]),
            )
    finally:
        tiny_models.Innocent.forward = kept  # type: ignore[method-assign]
    assert "compile" not in bench.steps
    assert "key" not in bench.steps


def _drifted(
    self: tiny_models.Innocent, x: torch.Tensor, spare: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    del spare
    return self.linear(x) * 1.5 + self.steps, self.linear(x)
