"""Files of weights that people upload: which are taken, and what is said of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import safetensors.torch
import torch
from torch import nn

from pt2hub.errors import WeightsMismatch
from pt2hub_workers.inside.builds.compile import weights

if TYPE_CHECKING:
    from pathlib import Path


class Tied(nn.Module):
    """A table that is also the head, and a mask with infinities."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.table.weight
        self.norm = nn.LayerNorm(4)
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        self.register_buffer("steps", torch.arange(4.0), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.table(ids) + self.steps)) + self.mask[0]


def state(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    found = {name.replace("__", "."): tensor.clone() for name, tensor in Tied().state_dict().items()}
    for name, tensor in changes.items():
        found.pop(name.replace("__", "."), None)
        if tensor is not None:
            found[name.replace("__", ".")] = tensor
    return found


def load(given: dict[str, torch.Tensor], tmp_path: Path) -> nn.Module:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(given, path)
    model = Tied().eval().requires_grad_(False)
    weights.load_weights(model, path)
    return model


def refused(given: dict[str, torch.Tensor], tmp_path: Path) -> WeightsMismatch:
    with pytest.raises(WeightsMismatch) as caught:
        load(given, tmp_path)
    assert caught.value.where == "weights"
    return caught.value


@pytest.mark.parametrize("without", [None, "head__weight", "table__weight"])
def test_a_tied_weight_is_taken_under_either_name_or_both(tmp_path: Path, without: str | None) -> None:
    given = state(**({without: None} if without else {}))
    model = load(given, tmp_path)
    assert torch.equal(
        model.get_parameter("head.weight"), given.get("table.weight", given.get("head.weight"))
    )
    assert model.head.weight is model.table.weight
    assert torch.equal(model.get_buffer("steps"), torch.arange(4.0))


def test_two_values_for_one_tied_weight_are_refused(tmp_path: Path) -> None:
    error = refused(state(head__weight=torch.ones(6, 4)), tmp_path)
    assert "table.weight and head.weight are tied in the model" in error.message


@pytest.mark.parametrize("prefix", ["module.", "model.encoder."])
def test_a_prefix_before_every_name_is_recognised(tmp_path: Path, prefix: str) -> None:
    error = refused({prefix + name: tensor for name, tensor in state().items()}, tmp_path)
    assert f"begins with {prefix}," in str(error.hint)


def test_a_prefix_that_the_model_has_and_the_file_lacks_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(state(), path)
    with pytest.raises(WeightsMismatch) as caught:
        weights.load_weights(nn.ModuleDict({"backbone": Tied()}), path)
    assert "model begins with backbone." in str(caught.value.hint)


def test_weights_saved_in_another_dtype_are_told_how_to_be_converted(tmp_path: Path) -> None:
    error = refused({name: tensor.half() for name, tensor in state().items()}, tmp_path)
    assert "float16 where the model has float32" in str(error.hint)


def test_of_hundreds_of_wrong_tensors_some_are_named_and_the_rest_are_counted(tmp_path: Path) -> None:
    error = refused({**state(), **{f"extra.{n}": torch.zeros(1) for n in range(33)}}, tmp_path)
    assert error.message == "33 tensors do not fit the model; 20 are listed, and 13 more are wrong"
    assert len(error.details) == 20


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(tmp_path: Path, value: float) -> None:
    bad = torch.zeros(4)
    bad[2] = value
    error = refused(state(norm__bias=bad, norm__weight=torch.ones(4)), tmp_path)
    assert error.message == "1 tensor holds NaN or infinity"
    assert [item.path for item in error.details] == ["norm.bias"]


def test_buffers_may_hold_infinities_but_no_nan(tmp_path: Path) -> None:
    assert torch.equal(load(state(), tmp_path).get_buffer("mask"), torch.tensor([0.0, float("-inf")]))
    error = refused(state(mask=torch.tensor([0.0, float("nan")])), tmp_path)
    assert [item.path for item in error.details] == ["mask"]


@pytest.mark.parametrize("content", [b"", b"junk", b"\x02\0\0\0\0\0\0\0{}trailing", b"\xff" * 40])
def test_files_that_are_no_safetensors_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(WeightsMismatch, match="cannot read the weights") as caught:
        weights.load_weights(Tied(), path)
    assert "save_file" in str(caught.value.hint)


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_reads_a_tied_weight_by_the_last_of_its_names(strict: bool) -> None:
    model = Tied().eval().requires_grad_(False)
    ids = torch.tensor([1, 2])
    program = torch.export.export(model, (ids,), strict=strict)
    weights.rename_tied(program, model)
    read = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    used = {item.target for item in program.graph_signature.input_specs if item.arg.name in read}
    assert used & {"table.weight", "head.weight"} == {"head.weight"}
    assert torch.equal(program.module()(ids), model(ids))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"table.weight"}, {"table.weight": "table.weight", "head.weight": "table.weight"}),
        ({"head.weight"}, {"table.weight": "head.weight", "head.weight": "head.weight"}),
        (
            {"table.weight", "head.weight"},
            {"table.weight": "table.weight", "head.weight": "head.weight"},
        ),
    ],
)
def test_a_tied_weight_is_found_in_its_file_under_each_of_its_names(
    tmp_path: Path, names: set[str], found: dict[str, str]
) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file({name: torch.zeros(1) for name in names}, path)
    assert weights.map_names(Tied(), path) == found
