"""A model that fails at the smallest sizes of its spec is refused before it is compiled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import InputRefused, NanOutput
from pt2hub_workers.inside.builds.export.adapter import adapt_model
from pt2hub_workers.inside.builds.export.smallest_sizes import check_smallest
from support.workbench import tiny_spec


class Spread(nn.Module):
    """Each row by the spread of all, which one row does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.std(0)


class Pooled(nn.Module):
    """Windows of four along the second dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool1d(x, 4)


def _spec(**lows: int) -> Spec:
    dims = {name: {"min": low, "max": 16, "example": 8} for name, low in lows.items()}
    inputs = [{"name": "x", "shape": [*lows], "dtype": "float32", "generate": {"normal": {}}}]
    return Spec.model_validate({**tiny_spec("Tied", inputs=inputs), "dims": dims})


def test_the_dimension_whose_minimum_fails_is_named() -> None:
    spec = _spec(batch=1, length=2)
    with pytest.raises(InputRefused, match=r"at the smallest sizes, length=2: the model raised") as caught:
        check_smallest(adapt_model(Pooled(), spec), spec, {})
    assert caught.value.where == "dims.length.min"
    assert str(caught.value.hint).startswith("Raise dims.length.min, or change the model. Shapes given")


def test_outputs_that_are_not_finite_there_are_refused_as_well() -> None:
    spec = _spec(batch=1, length=2)
    with (
        pytest.warns(UserWarning, match="degrees of freedom"),
        pytest.raises(NanOutput, match="at the smallest sizes, batch=1: output 0 contains NaN") as caught,
    ):
        check_smallest(adapt_model(Spread(), spec), spec, {})
    assert caught.value.where == "dims.batch.min"


def test_a_model_that_runs_at_the_smallest_sizes_passes() -> None:
    spec = _spec(batch=2, length=4)
    for model in (Spread(), Pooled()):
        check_smallest(adapt_model(model, spec), spec, {})
