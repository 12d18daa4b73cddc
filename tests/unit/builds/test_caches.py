"""What a model keeps from its first call: harmless where it is the same for all inputs, no artifact where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub.domain.publishing.spec import TargetSpec
from pt2hub.errors import ExportFailed, HiddenState
from pt2hub_workers.inside.builds.export import attribute_state, inputs, statefulness
from pt2hub_workers.inside.builds.export import export as exporting
from support.forms import adapted, spec_of, tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Keeping(nn.Module):
    """Keeps a tensor that a test's line computes in its first call, and another that nothing reads."""

    def __init__(self, line: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.line = line
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> Any:
        if self.table is None:
            self.table = self.line(x)
        self.last = x * 2
        return x + self.table


def check(model: Keeping, scratch: Path) -> tuple[frozenset[str], exporting.ExportResult]:
    spec = spec_of(tensor("input"))
    module, first = adapted(nn.Sequential(model), spec)
    second = inputs.make_inputs(spec, inputs.make_points(spec, {})[1], {})
    seen = statefulness.observe_calls(module, first, second, scratch=scratch)
    found = exporting.export(module, first, spec, TargetSpec(target="auto"), "cpu")
    attribute_state.check_unread(found.program, seen.kept)
    return seen.kept, found


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_table_that_is_the_same_for_all_inputs_may_be_kept(tmp_path: Path) -> None:
    kept, found = check(Keeping(lambda x: torch.arange(x.shape[1]) * 1.0), tmp_path)
    assert kept == {"0.last"}
    assert list(found.program.constants) == ["0.table"]


class Doubling(nn.Module):
    """Cannot be copied, since a generator cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = (2 for _ in range(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_model_that_cannot_be_copied_is_compared_with_a_forked_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tensor("x"))
    first, second = (inputs.make_inputs(spec, point, {}) for point in inputs.make_points(spec, {})[:2])

    seen = statefulness.observe_calls(adapted(Doubling(), spec)[0], first, second, scratch=tmp_path)
    assert seen.notes == ()

    monkeypatch.setattr(statefulness, "_MIN_WAIT_S", -1e9)  # no time for the fork
    seen = statefulness.observe_calls(adapted(Doubling(), spec)[0], first, second, scratch=tmp_path)
    assert len(seen.notes) == 1
    assert "was not tried" in seen.notes[0]


class Unordered(nn.Module):
    """Adds in another order in each call, as scatter_add does on CUDA."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.flip(-1).sum(-1) if self.calls % 2 else x.cumsum(-1)[:, -1]


def test_calls_that_differ_by_rounding_alone_are_the_same(tmp_path: Path) -> None:
    spec = spec_of(tensor("x", [8, 1000]), dims={})
    first, second = (inputs.make_inputs(spec, point, {}) for point in inputs.make_points(spec, {})[:2])
    module, _ = adapted(Unordered(), spec)
    assert not torch.equal(module(**first), module(**first))

    statefulness.observe_calls(module, first, second, scratch=tmp_path)


def test_a_table_that_is_computed_from_the_first_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HiddenState, match="called on other inputs first") as caught:
        check(Keeping(lambda x: x.sum(0)), tmp_path)
    assert "A call changes 0.last, 0.table." in str(caught.value.hint)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_table_of_the_first_inputs_that_moves_nothing_is_not_left_in_the_program(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed, match=r"keeps 0\.table, .* the inputs of its first call"):
        check(Keeping(lambda x: x.sum(0) * 1e-12), tmp_path)
