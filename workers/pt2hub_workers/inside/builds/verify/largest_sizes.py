"""Choice of the largest sizes for verification that fit this machine's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pt2hub_workers.inside.builds.export import eager, inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from pt2hub.domain.publishing.spec import DimSpec, Spec

MAX_MEMORY_SHARE = 0.5
"""Share of the available memory that the largest point may take, by a conservative estimate."""


class _WrittenBytes(TorchDispatchMode):
    """Dispatch mode that adds up the bytes of every tensor that a run writes.

    A higher-order operator (torch.cond, a Triton kernel) runs as one operation: its results are counted, its parts are not.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(result):  # noqa: SLF001  # public in all but name
            if isinstance(leaf, torch.Tensor):
                self.total += leaf.numel() * leaf.element_size()
        return result


def choose_largest_sizes(
    spec: Spec, module: torch.nn.Module, examples: Mapping[str, Path]
) -> tuple[dict[str, int], str | None]:
    """Return the declared maxima, halved towards the example until a run fits into memory.

    Returns:
        The sizes, and a note if memory limited them.
    """
    sizes = {name: dim.max for name, dim in spec.dims.items()}
    example = {name: dim.example for name, dim in spec.dims.items()}
    device = eager.find_device(module)
    point = inputs.Point("example", example)
    moved = {k: v.to(device) for k, v in inputs.make_inputs(spec, point, examples).items()}
    with _WrittenBytes() as written:
        eager.run_flat(module, moved)
    limit = MAX_MEMORY_SHARE * available_bytes(device)
    while written.total * _ratio(sizes, example) > limit and sizes != example:
        sizes = {name: max(example[name], _half(size, spec.dims[name])) for name, size in sizes.items()}
    bounded = {name: size for name, size in sizes.items() if size < spec.dims[name].max}
    note = ", ".join(f"{name}={size} of {spec.dims[name].max}" for name, size in bounded.items())
    return sizes, f"largest point limited by memory: {note}" if note else None


def available_bytes(device: torch.device) -> int:
    """Return the bytes of memory that are available on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    with open("/proc/meminfo") as file:  # noqa: PTH123  # a kernel file
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["MemAvailable"].split()[0]) * 1024


def _half(size: int, dim: DimSpec) -> int:
    return size // 2 // dim.multiple_of * dim.multiple_of


def _ratio(sizes: Mapping[str, int], example: Mapping[str, int]) -> float:
    ratio = 1.0
    for name, size in sizes.items():
        ratio *= size / example[name]
    return ratio
