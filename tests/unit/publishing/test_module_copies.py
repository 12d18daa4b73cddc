"""Copies of models that hold what Python cannot copy."""

from __future__ import annotations

import copy
import copyreg
import functools
import math
import sys
import threading
from types import ModuleType
from typing import Any, Self

import pytest
import torch
from torch import nn

from pt2hub.client.publishing.live_models.module_copies import copy_module
from pt2hub.errors import ModelNotCopyable


@torch.library.triton_op("copies::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _add(x: torch.Tensor) -> torch.Tensor:
    return x + 1


scripted = torch.jit.script(_add)


class Holder(nn.Module):
    """Calls what it holds."""

    def __init__(self, held: Any = None) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.held = held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.held(self.linear(x))
        return y


class Nested:
    """An object of the author's, with a lock and an operator inside."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.parts = {"act": [functools.partial(double)]}


@pytest.mark.parametrize(
    "held",
    [double, scripted, torch.ops.copies, torch.library.Library("copies", "FRAGMENT"), math, threading.Lock()],
    ids=["operator", "script function", "namespace", "library", "module", "lock"],
)
def test_a_copy_shares_functions_and_locks(held: object) -> None:
    model = nn.Sequential(Holder(held))
    with pytest.raises(Exception, match="pickle"):
        copy.deepcopy(model)

    assert copy_module(model)[0].held is held


def test_a_copy_has_weights_of_its_own_and_computes_the_same() -> None:
    model = Holder(double)

    other = copy_module(model).double()

    x = torch.rand(3, 2)
    assert model.linear.weight.dtype is torch.float32
    torch.testing.assert_close(other(x.double()).float(), model(x))
    same = copy_module(model, share_parameters=True)
    assert same.linear.weight is model.linear.weight
    assert same is not model


def test_objects_of_the_author_are_copied_and_share_what_is_inside() -> None:
    model = Holder(Nested())

    other = copy_module(model)

    assert other.held is not model.held
    assert other.held.lock is model.held.lock
    assert other.held.parts["act"][0].func is double


def test_kernels_of_triton_are_shared_if_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Triton's launcher, whose kernels hold a lock: torch for a CPU comes without Triton."""

    class KernelInterface: ...

    class Kernel(KernelInterface):
        def __reduce__(self) -> str:
            raise TypeError("cannot pickle '_thread.RLock' object")

    stand_in = ModuleType("triton.runtime.jit")
    vars(stand_in)["KernelInterface"] = KernelInterface
    kernel = Kernel()
    with pytest.raises(ModelNotCopyable, match=r"its attribute held \(Kernel\)"):
        copy_module(Holder(kernel))

    monkeypatch.setitem(sys.modules, "triton.runtime.jit", stand_in)
    assert copy_module(Holder(kernel)).held is kernel


def test_the_attribute_that_cannot_be_copied_is_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Holder(item for item in ())))

    with pytest.raises(
        ModelNotCopyable, match=r"its attribute 1\.0\.held \(generator\) raises TypeError: cannot pickle"
    ) as caught:
        copy_module(model)

    assert "forward" in str(caught.value.hint)


def test_a_submodule_that_refuses_to_be_copied_is_named() -> None:
    class Refusing(nn.Module):
        def __deepcopy__(self, _: object) -> Self:
            raise ValueError("there is one of me")

    with pytest.raises(
        ModelNotCopyable, match=r"its submodule 1 \(Refusing\) raises ValueError: there is one of me"
    ):
        copy_module(nn.Sequential(nn.ReLU(), Refusing()))


def test_pythons_own_copies_are_as_before() -> None:
    before = dict(copyreg.dispatch_table)

    copy_module(Holder(threading.Lock()))

    assert copyreg.dispatch_table == before
