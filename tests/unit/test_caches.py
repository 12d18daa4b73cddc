"""What a model keeps from its first call: harmless where it is the same for all inputs, no artifact where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub.domain.specs import TargetSpec
from pt2hub.errors import ExportFailed
from pt2hub_workers.inside import adapting, caches, exporting, inputs
from support.forms import adapted, spec_of, tensor

if TYPE_CHECKING:
    from collections.abc import Callable


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


def check(model: Keeping) -> tuple[frozenset[str], exporting.Exported]:
    spec = spec_of(tensor("x"))
    module, first = adapted(nn.Sequential(model), spec_of(tensor("input")))
    second = inputs.make(spec_of(tensor("input")), inputs.points(spec, {})[1], {})
    kept = caches.kept_from_inputs(module, first, second)
    assert model.table is None
    assert not hasattr(model, "last")
    adapting.settle(module, first)
    spec = spec_of(tensor("input"))
    found = exporting.export(module, first, spec, TargetSpec(target="auto"), "cpu")
    caches.check_unread(found.program, kept)
    return kept, found


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_table_that_is_the_same_for_all_inputs_may_be_kept() -> None:
    kept, found = check(Keeping(lambda x: torch.arange(x.shape[1]) * 1.0))
    assert kept == {"0.last"}
    assert list(found.program.constants) == ["0.table"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_table_that_is_computed_from_the_first_inputs_is_refused() -> None:
    with pytest.raises(ExportFailed, match=r"keeps 0\.table, .* the inputs of its first call"):
        check(Keeping(lambda x: x.sum(0)))
