"""Plain functions as modules."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from pt2hub.errors import NotAModule
from pt2hub_workers.inside.sources.functions import is_function, wrap_function

if TYPE_CHECKING:
    from collections.abc import Callable

LAYER = nn.Linear(3, 3)
TABLE = torch.arange(3.0)


def scaled(x: torch.Tensor, /, scale: float = 2.0, *, bias: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": x * scale + bias + TABLE}


def calling_a_global(x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = LAYER(x)
    return result


def calling_a_closure() -> Callable[..., torch.Tensor]:
    layer = nn.Linear(3, 3)
    return lambda x: layer(x)  # noqa: PLW0108  # what users write


def taking_a_layer(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = layer(x)
    return result


def test_the_module_has_the_functions_signature_and_name_and_exports_in_both_modes() -> None:
    module = wrap_function(scaled, "source.entry")

    assert inspect.signature(module.forward) == inspect.signature(scaled)
    assert type(module).__name__ == "scaled"
    x, bias = torch.randn(2, 3), torch.randn(3)
    for strict in (False, True):
        program = torch.export.export(module, (x,), {"bias": bias}, strict=strict)
        assert torch.equal(program.module()(x, bias=bias)["y"], x * 2 + bias + TABLE)


def test_a_partial_call_is_a_function_of_what_is_left() -> None:
    module = wrap_function(functools.partial(scaled, scale=3.0), "source.entry")

    assert torch.equal(module(torch.ones(3), bias=torch.zeros(3))["y"], 3 + TABLE)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (calling_a_global, "LAYER"),
        (calling_a_closure(), "layer"),
        (LAYER.forward, "its own object"),
        (functools.partial(taking_a_layer, LAYER), "0"),
    ],
    ids=["global", "closure", "method", "partial"],
)
def test_a_function_whose_weights_nobody_would_see_is_refused(
    function: Callable[..., torch.Tensor], name: str
) -> None:
    with pytest.raises(NotAModule, match=f"calls {name}, a Linear") as caught:
        wrap_function(function, "source.entry")

    assert caught.value.where == "source.entry"


def test_a_built_in_function_without_a_signature_is_refused() -> None:
    with pytest.raises(NotAModule, match="sigmoid is a built-in function"):
        wrap_function(torch.sigmoid, "source.factory")


def test_classes_and_callable_objects_are_no_functions() -> None:
    assert [is_function(value) for value in (nn.Linear, LAYER, 3)] == [False, False, False]
    assert [is_function(value) for value in (scaled, torch.sigmoid)] == [True, True]
