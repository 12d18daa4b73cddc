"""What an exported program writes to is found, also inside blocks, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub.errors import ExportFailed, InputMutated
from support.forms import exported, spec_of, tensor

if TYPE_CHECKING:
    from collections.abc import Callable


class Counting(nn.Module):
    """Has a counter, and a line that a test chooses."""

    calls: torch.Tensor

    def __init__(self, line: Callable[[Counting, torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(4))
        self.line = line

    def forward(self, x: torch.Tensor) -> Any:
        return self.line(self, x)


@torch.no_grad()
def without_gradients(model: Counting, x: torch.Tensor) -> torch.Tensor:
    model.calls.add_(1)
    return model.linear(x)


def in_lower_precision(model: Counting, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.calls.add_(1)
        return model.linear(x)


def assigned(model: Counting, x: torch.Tensor) -> torch.Tensor:
    model.calls = model.calls + 1
    return model.linear(x) + model.calls


@pytest.mark.parametrize("line", [without_gradients, in_lower_precision, assigned])
def test_a_buffer_that_is_written_in_a_block_or_by_assignment_counts_as_written(line: Any) -> None:
    found, _ = exported(Counting(line), spec_of(tensor("x")))
    assert found.mutated == {"calls"}


@pytest.mark.filterwarnings("ignore:While compiling:UserWarning")
def test_state_that_a_strict_export_leaves_out_is_no_artifact() -> None:
    with pytest.raises(ExportFailed, match=r"dropped the model's write to the buffer calls") as caught:
        exported(Counting(assigned), spec_of(tensor("x"), export={"strict": True}))
    assert r"self.calls.copy_(" in (caught.value.hint or "")


def test_an_input_that_is_written_in_a_block_is_found_though_nothing_changes_at_the_example() -> None:
    @torch.no_grad()
    def clamped(model: Counting, x: torch.Tensor) -> torch.Tensor:
        return model.linear(x.clamp_(-100, 100))

    with pytest.raises(InputMutated) as caught:
        exported(Counting(clamped), spec_of(tensor("x")))
    assert caught.value.where == "inputs.x"


def test_what_is_made_from_an_input_or_a_buffer_may_be_written() -> None:
    def copies(model: Counting, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            hidden = model.linear(x.float().mul_(2))
        return hidden.relu_() + model.calls.to(torch.float64).add_(1)

    found, _ = exported(Counting(copies), spec_of(tensor("x", dtype="int64")))
    assert found.mutated == frozenset()
