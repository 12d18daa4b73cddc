"""Calls of a loaded artifact with inputs generated from its signature."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub.client.artifacts.call_contract import call_with

if TYPE_CHECKING:
    from pt2hub.client.artifacts.loader import LoadedModel
    from pt2hub.domain.artifacts import ArtifactConfig, TensorInput

_WARM_UP = 3


def time_calls(model: LoadedModel, calls: int) -> dict[str, Any]:
    """Call a model several times; return shapes, latency in milliseconds and threads.

    Args:
        calls: Number of timed calls, after a few warm-up calls.
    """
    inputs = sample_inputs(model.config, model.device)
    call = call_with(model.config.signature, inputs)
    with torch.inference_mode():
        result = model(**call)
        milliseconds = _call_repeatedly(model, call, calls)
    outputs, _ = pytree.tree_flatten_with_path(result)
    return {
        "model": f"{model.config.version.model}@{model.config.version.number}",
        "target": model.config.target.name,
        "inputs": {name: _shape(tensor) for name, tensor in inputs.items()},
        "outputs": {f"out{pytree.keystr(path)}": _shape(tensor) for path, tensor in outputs},
        "latency_ms_p50": round(statistics.median(milliseconds), 3),
        "latency_ms_min": round(min(milliseconds), 3),
        "calls": calls,
        "threads": torch.get_num_threads(),
    }


def sample_inputs(config: ArtifactConfig, device: torch.device) -> dict[str, torch.Tensor]:
    """Return inputs that fit the signature, by path, generated as the spec says if it does."""
    described = {item["name"]: item.get("generate") or {} for item in config.version.spec.get("inputs", ())}
    sizes = _sizes(config)
    return {
        item.name: _tensor(item, sizes, described.get(item.name, {})).to(device)
        for item in config.signature.inputs
    }


def _random(shape: list[int], generate: dict[str, Any]) -> torch.Tensor:
    uniform, normal = generate.get("uniform"), generate.get("normal") or {}
    if uniform is not None:
        low, high = float(uniform.get("low", 0.0)), float(uniform.get("high", 1.0))
        return torch.rand(shape) * (high - low) + low
    return torch.randn(shape) * float(normal.get("std", 1.0)) + float(normal.get("mean", 0.0))


def _sizes(config: ArtifactConfig) -> dict[str, int]:
    declared = config.version.spec.get("dims", {})
    return {
        name: int(declared.get(name, {}).get("example", dim.min))
        for name, dim in config.signature.dims.items()
    }


def _tensor(item: TensorInput, sizes: dict[str, int], generate: dict[str, Any]) -> torch.Tensor:
    shape = [sizes[size] if isinstance(size, str) else size for size in item.shape]
    dtype: torch.dtype = getattr(torch, item.dtype)
    bounds = generate.get("randint")
    if "constant" in generate:
        tensor = torch.full(shape, generate["constant"], dtype=dtype)
    elif bounds:
        tensor = torch.randint(bounds.get("low", 0), bounds["high"], shape).to(dtype)
    elif dtype.is_floating_point:
        tensor = _random(shape, generate).to(dtype)
    else:  # 0 is the only index that every table has
        tensor = torch.zeros(shape, dtype=dtype)
    channels_last = item.memory_format == "channels_last" and tensor.dim() == 4  # noqa: PLR2004  # images only
    return tensor.contiguous(memory_format=torch.channels_last) if channels_last else tensor


def _call_repeatedly(model: LoadedModel, call: dict[str, Any], calls: int) -> list[float]:
    samples = []
    for _ in range(_WARM_UP + calls):
        start = time.perf_counter()
        model(**call)
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        samples.append((time.perf_counter() - start) * 1000)
    return samples[_WARM_UP:]


def _shape(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
