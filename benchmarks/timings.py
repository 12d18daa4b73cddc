"""Fresh processes for the benchmarks: `python benchmarks/timings.py WHAT REF ...`.

Each prints one JSON object. Timing begins after `import torch`, and for eager and torch.compile after the
model was built, in their favour.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub_workers.performance.demonstration import first_call, read_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pt2hub.client.artifacts.local import LocalArtifact

INPUT_SEEDS = (11, 12)
ROUNDS = 40
WARM_UP = 3


def main(what: str, reference: str, *rest: str) -> dict[str, Any]:
    """Run one of the timings.

    Args:
        what: `eager`, `torch_compile`, `latencies` or `forms`.
        *rest: For `latencies` a file where stock AOTInductor's package of the same model is kept, which is compiled if
            it is not there; for `forms` the version with baked weights.
    """
    import torch

    several: dict[str, Callable[..., dict[str, Any]]] = {"latencies": latencies, "forms": forms}
    result = several[what](reference, *rest) if what in several else first_call(FIRSTS[what](reference))
    return {**result, "threads": torch.get_num_threads()}


def first_eager(reference: str) -> Callable[[], Any]:
    """Return the first call of the module."""
    local = _local(reference)
    module, inputs = _module(local), _inputs(local)
    return lambda: module(**inputs)


def first_torch_compile(reference: str) -> Callable[[], Any]:
    """torch.compile and the first call."""
    import torch

    local = _local(reference)
    module, inputs = _module(local), _inputs(local)
    return lambda: torch.compile(module)(**inputs)


FIRSTS: dict[str, Callable[..., Callable[[], Any]]] = {
    "eager": first_eager,
    "torch_compile": first_torch_compile,
}


def latencies(reference: str, stock: str | None = None) -> dict[str, Any]:
    """p50 latency of the three forms in one process, taking turns, and the artifact's error against eager.

    Args:
        stock: Where stock AOTInductor's package is kept; it then takes part too.
    """
    import torch

    import pt2hub
    from pt2hub_workers.inside.builds.differences import max_difference, rms_difference

    local = _local(reference)
    module, artifact = _module(local), pt2hub.load(reference)
    compiled = torch.compile(module)
    first, second = (_inputs(local, seed) for seed in INPUT_SEEDS)
    calls: dict[str, Callable[..., Any]] = {"aot": artifact, "torch_compile": compiled, "eager": module}
    if stock:
        calls["stock_aotinductor"] = _stock(module, local, Path(stock))
    medians = _interleaved(calls, first)
    with torch.inference_mode():
        expected, other, found = module(**first), module(**second), artifact(**first)
    return {
        "p50_ms": medians,
        "relative_error": max_difference(found, expected) / rms_difference(expected, other),
    }


def forms(split: str, baked: str) -> dict[str, Any]:
    """p50 latency of one model with its weights split from the code and baked into it, in one process, taking turns."""
    import pt2hub
    from pt2hub_workers.inside.builds.differences import max_difference, rms_difference

    one, other = pt2hub.load(split), pt2hub.load(baked)
    first, second = (_inputs(_local(split), seed) for seed in INPUT_SEEDS)
    medians = _interleaved({"split": one, "baked": other}, first)
    expected = one(**first)
    error = max_difference(other(**first), expected) / rms_difference(expected, one(**second))
    return {"p50_ms": medians, "relative_error": error}


def _interleaved(calls: dict[str, Callable[..., Any]], inputs: dict[str, Any]) -> dict[str, float]:
    """Return each call's median in milliseconds."""
    import torch

    samples: dict[str, list[float]] = {name: [] for name in calls}
    with torch.inference_mode():
        for round_number in range(ROUNDS + WARM_UP):
            # In a fixed order each form would always meet the caches as the same other one left them.
            for name, call in random.sample(list(calls.items()), len(calls)):
                started = time.perf_counter()
                call(**inputs)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                if round_number >= WARM_UP:
                    samples[name].append((time.perf_counter() - started) * 1000)
    return {name: statistics.median(values) for name, values in samples.items()}


def _stock(module: torch.nn.Module, local: LocalArtifact, package: Path) -> Callable[..., Any]:
    """Return the same model through torch's own compile and load, with their defaults."""
    import torch
    import torch._inductor
    import torch._inductor.package

    if not package.exists():
        from pt2hub_workers.inside.builds.export.export import dynamic_shapes

        shapes = dynamic_shapes(read_spec(local))
        program = torch.export.export(module, (), _inputs(local), dynamic_shapes=shapes)
        torch._inductor.aoti_compile_and_package(program, package_path=str(package))  # noqa: SLF001  # documented
    return torch._inductor.aoti_load_package(str(package))  # noqa: SLF001  # documented


def _local(reference: str) -> LocalArtifact:
    import pt2hub

    return pt2hub.pull(reference)


def _module(local: LocalArtifact) -> torch.nn.Module:
    from pt2hub_workers.inside.builds.compile.weights import load_weights
    from pt2hub_workers.inside.builds.export.adapter import adapt_model
    from pt2hub_workers.performance.demonstration import build_model

    spec = read_spec(local)
    module = adapt_model(build_model(spec.source), spec)
    load_weights(module, local.weights)
    return module.to(local.config.signature.device)


def _inputs(local: LocalArtifact, seed: int = INPUT_SEEDS[0]) -> dict[str, Any]:
    """Return the arguments of a call of the artifact or the module, at the spec's example sizes."""
    import torch

    from pt2hub_workers.inside.builds.export.call import arguments

    torch.manual_seed(seed)
    dims = local.config.version.spec.get("dims", {})
    made = {}
    for item in local.config.signature.inputs:
        shape = [dims[size]["example"] if isinstance(size, str) else size for size in item.shape]
        tensor = torch.randn(shape).to(getattr(torch, item.dtype))
        made[item.name] = tensor.to(local.config.signature.device)
    return arguments(made)


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
