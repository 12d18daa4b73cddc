"""Configurations of the model's own autotuned Triton kernels, recorded like the candidates of Inductor's operations.

Inductor compiles such a kernel with the configurations of its `@triton.autotune`, times them, and keeps the fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pt2hub_workers.inside.builds.compile.autotune_candidates import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KIND = "USER_AUTOTUNE"
"""Name of Inductor's heuristic for kernels that are not its own."""
_FIELDS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_RESOURCES = "cannot be launched on this GPU: it needs more of a resource than the GPU has"


@dataclass(frozen=True, slots=True, eq=False)
class KernelConfiguration:
    """A configuration, with what `autotune_candidates` reads of a candidate."""

    name: str
    config: Any

    def info_dict(self) -> dict[str, Any]:
        """Return its parameters."""
        fields = {name: getattr(self.config, name, None) for name in _FIELDS}
        return {**self.config.kwargs, **{name: value for name, value in fields.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class _Argument:
    """A tensor that a kernel is timed with, as `Operation` reads an operation's inputs."""

    tensor: torch.Tensor

    def get_size(self) -> torch.Size:
        return self.tensor.size()

    def get_stride(self) -> tuple[int, ...]:
        return self.tensor.stride()

    def get_dtype(self) -> torch.dtype:
        return self.tensor.dtype


def is_users(kernel: Any) -> bool:
    """Return whether a `CachingAutotuner` of Inductor runs a kernel of the model."""
    return getattr(getattr(kernel, "heuristic_type", None), "name", None) == _KIND


def describe_tuning(
    number: int, kernel: Any, times: Mapping[Any, float], arguments: Iterable[Any], *, seconds: float
) -> Operation:
    """Return the choice among a kernel's configurations.

    Args:
        number: Of the operation in the compile.
        times: Milliseconds by launcher; configurations that were compiled and have none could not be launched.
        arguments: What the kernel was called with.
        seconds: Duration of the timing.
    """
    name = str(getattr(kernel.fn, "__name__", "kernel"))
    made = {id(launcher.config): (launcher.config, time) for launcher, time in times.items()}
    compiled = [result.config for result in getattr(kernel, "compile_results", None) or ()]
    known = {_parameters(config) for config, _ in made.values()}
    left = [config for config in compiled if _parameters(config) not in known]
    configs = [config for config, _ in made.values()] + left
    candidates = [
        KernelConfiguration(f"user kernel: {name}_{place}", config) for place, config in enumerate(configs)
    ]
    nodes = [_Argument(item) for item in arguments if isinstance(item, torch.Tensor)]
    operation = Operation(number, name, nodes, list(candidates))
    operation.times = {
        candidate: made[id(candidate.config)][1] for candidate in candidates if id(candidate.config) in made
    }
    operation.reasons = {id(item): _RESOURCES for item in candidates[len(made) :]}
    operation.precompile_seconds = getattr(kernel, "precompile_time_taken_ns", 0) / 1e9
    operation.benchmark_seconds = seconds
    return operation


def _parameters(config: Any) -> str:
    return str(sorted(KernelConfiguration("", config).info_dict().items()))
