"""How far rounding alone may move a model's outputs: what of eager's own error it explains, and what it does not.

The model runs in float64, and after each operation every element is moved at random by as much as rounding in another
dtype might (Monte Carlo arithmetic: Parker 1997, Monte Carlo Arithmetic; Vignes 1993, CESTAC). What cancels, or is
otherwise sensitive, moves far; a model that draws random numbers or does something else in float64 does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pt2hub_workers.inside import comparing, eager, settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub_workers.inside.eager import Outputs
    from pt2hub_workers.inside.inputs import Tensors

EXPLAINED = 16.0
"""Eager's error counts up to this many times what the noise moves. The noise is one rounding per operation and element; a
sum of K products inside one operation rounds K times, which adds up to the square root of K at most where signs vary, and
blocked sums (as of every BLAS) to that of K over the block: 16 covers sums of thousands."""
_REDUCED = {"high": 2.0**-10, "tf32": 2.0**-10, "medium": 2.0**-7, "bf16": 2.0**-7}
"""Unit of products that `torch.set_float32_matmul_precision` and `torch.backends.*.fp32_precision` allow."""


def unit(dtype: torch.dtype, device: torch.device) -> float:
    """By how much one operation may round, relative to its result.

    Args:
        dtype: Of the model's outputs, or its weights.
        device: Where it runs.
    """
    eps = float(torch.finfo(dtype).eps)
    if dtype is not torch.float32:
        return eps
    names = settings.precisions_of_products(device.type)
    return max(eps, *(_REDUCED.get(name, eps) for name in names))


def explained(precise: torch.nn.Module, inputs: Tensors, right: Outputs, eps: float) -> list[float]:
    """By how much each output moves when every operation rounds as with `eps`.

    Args:
        precise: The model in float64, a copy that nobody needs any more: its weights are moved too.
        inputs: Likewise.
        right: Its outputs there.
        eps: As `unit` has it.
    """
    rounding = _Rounding(eps)
    with torch.no_grad():
        for tensor in (*precise.parameters(), *precise.buffers()):
            tensor.copy_(rounding.moved(tensor))
    with rounding:
        moved = eager.run_flat(precise, {name: rounding.moved(tensor) for name, tensor in inputs.items()})
    return [comparing.difference(left, other) for left, other in zip(moved, right, strict=True)]


class _Rounding(TorchDispatchMode):
    """Moves each float64 result of an operation by up to eps of itself."""

    supports_higher_order_operators = True

    def __init__(self, eps: float) -> None:
        super().__init__()
        self._eps = eps
        self._generators: dict[torch.device, torch.Generator] = {}

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype is not torch.float64:
            return tensor
        return tensor * self._factor(tensor)

    def _factor(self, tensor: torch.Tensor) -> torch.Tensor:
        generator = self._generators.get(tensor.device)
        if generator is None:
            generator = self._generators[tensor.device] = torch.Generator(tensor.device).manual_seed(1)
        drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float64, device=tensor.device)
        return 1 + self._eps * (2 * drawn - 1)

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401  # torch's protocol
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401  # torch's protocol
        del types
        given = dict(kwargs or {})
        if not isinstance(func, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for it
            # torch.cond, flex_attention and the like run as one operation, whose results are moved.
            return pytree.tree_map_only(torch.Tensor, self.moved, func(*args, **given))
        with self:  # what an operation consists of rounds too; inference mode does not take it apart
            apart = func.decompose(*args, **given)
        if apart is not NotImplemented:
            return apart
        result = func(*args, **given)
        return self._rounded(func, result)

    def _rounded(self, func: Any, result: Any) -> Any:  # noqa: ANN401  # whatever an operator returns
        returns = func._schema.returns  # noqa: SLF001  # its only name
        if not isinstance(result, list | tuple):
            return self._one(result, returns[0].alias_info if returns else None)
        many = len(returns) == len(result)
        made = [
            self._one(item, returns[place if many else 0].alias_info) for place, item in enumerate(result)
        ]
        return type(result)(made) if type(result) in (list, tuple) else type(result)(*made)

    def _one(self, value: Any, alias: Any) -> Any:  # noqa: ANN401  # a result, and torch's own type
        if not isinstance(value, torch.Tensor) or value.dtype is not torch.float64:
            return value
        if alias is None:
            return self.moved(value)
        if alias.is_write:
            value.mul_(self._factor(value))
        return value
