"""Estimates how much of eager's error rounding explains.

The model runs in float64, and after each operation every element is moved at random by as much as rounding in another
dtype might (Monte Carlo arithmetic: Parker 1997, Monte Carlo Arithmetic; Vignes 1993, CESTAC). Cancellation and other
sensitive operations move outputs far; a model that draws random numbers or computes something else in float64 does not
explain its error this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.export import eager
from pt2hub_workers.inside.builds.key import settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub_workers.inside.builds.export.eager import Outputs
    from pt2hub_workers.inside.builds.export.inputs import Tensors

NOISE_FACTOR = 16.0
"""Eager's error counts up to this many times what the noise moves. The noise is one rounding per operation and element; a
sum of K products inside one operation rounds K times, which adds up to the square root of K at most where signs vary, and
blocked sums (as of every BLAS) to that of K over the block: 16 covers sums of thousands."""
_REDUCED = {"high": 2.0**-10, "tf32": 2.0**-10, "medium": 2.0**-7, "bf16": 2.0**-7}
"""Unit of products that `torch.set_float32_matmul_precision` and `torch.backends.*.fp32_precision` allow."""


def rounding_unit(dtype: torch.dtype, device: torch.device) -> float:
    """Return the relative rounding error of one operation."""
    eps = float(torch.finfo(dtype).eps)
    if dtype is not torch.float32:
        return eps
    names = settings.matmul_precisions(device.type)
    return max(eps, *(_REDUCED.get(name, eps) for name in names))


def rounding_bound(precise: torch.nn.Module, inputs: Tensors, right: Outputs, eps: float) -> list[float]:
    """Return how far each output moves if every operation rounds with a relative error of `eps`.

    Args:
        precise: A float64 copy of the model to use up: its weights are moved too.
    """
    rounding = _RoundingNoise(eps)
    with torch.no_grad():
        for tensor in (*precise.parameters(), *precise.buffers()):
            tensor.copy_(rounding.perturb(tensor))
    with rounding:
        moved = eager.run_flat(precise, {name: rounding.perturb(tensor) for name, tensor in inputs.items()})
    return [differences.max_difference(left, other) for left, other in zip(moved, right, strict=True)]


class _RoundingNoise(TorchDispatchMode):
    """Dispatch mode that moves each float64 result of an operation by up to eps of itself."""

    supports_higher_order_operators = True

    def __init__(self, eps: float) -> None:
        super().__init__()
        self._eps = eps
        self._generators: dict[torch.device, torch.Generator] = {}

    def perturb(self, tensor: torch.Tensor) -> torch.Tensor:
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
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        given = dict(kwargs or {})
        if not isinstance(func, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for it
            # torch.cond, flex_attention and the like run as one operation, whose results are moved.
            return pytree.tree_map_only(torch.Tensor, self.perturb, func(*args, **given))
        with self:  # parts of an operation round too; inference mode does not decompose it
            apart = func.decompose(*args, **given)
        if apart is not NotImplemented:
            return apart
        result = func(*args, **given)
        return self._round(func, result)

    def _round(self, func: Any, result: Any) -> Any:
        returns = func._schema.returns  # noqa: SLF001  # its only name
        if not isinstance(result, list | tuple):
            return self._one(result, returns[0].alias_info if returns else None)
        many = len(returns) == len(result)
        made = [
            self._one(item, returns[place if many else 0].alias_info) for place, item in enumerate(result)
        ]
        return type(result)(made) if type(result) in (list, tuple) else type(result)(*made)

    def _one(self, value: Any, alias: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype is not torch.float64:
            return value
        if alias is None:
            return self.perturb(value)
        if alias.is_write:
            value.mul_(self._factor(value))
        return value
