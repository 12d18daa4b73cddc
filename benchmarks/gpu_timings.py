"""A fresh process of the GPU results: `python benchmarks/gpu_timings.py REF MODES SIZES` prints one JSON object.

The artifact, without and with CUDA graphs, the model in eager mode and under each mode of `torch.compile` live in one
process and take turns. Every call is waited for, as one that answers a request is.
"""

from __future__ import annotations

import copy
import importlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

import pt2hub
from gpu_entries import CODE
from pt2hub.domain.publishing.spec import FactorySource
from pt2hub_workers.inside.builds.compile.weights import load_weights
from pt2hub_workers.inside.builds.differences import max_difference, rms_difference
from pt2hub_workers.inside.builds.export.adapter import adapt_model
from pt2hub_workers.inside.builds.export.call import arguments
from pt2hub_workers.inside.builds.export.inputs import Point, make_inputs
from pt2hub_workers.inside.performance.timer import MAX_BLOCK_SECONDS, time_alternating
from pt2hub_workers.performance.demonstration import build_model, read_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.client.artifacts.local import LocalArtifact

SECONDS = 1.0
"""Of each implementation's calls."""


def _wait() -> None:
    if torch.cuda.is_available():  # the script can be tried on a CPU
        torch.cuda.synchronize()


class WaitedClock:
    """Times each call until the device has finished it."""

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        _wait()

    def block(self, call: Callable[[], object], count: int) -> tuple[list[float], float]:
        """Return milliseconds of each call, and the seconds of all."""
        samples: list[float] = []
        began = last = time.perf_counter()
        while len(samples) < count and last - began < MAX_BLOCK_SECONDS:
            call()
            _wait()
            now = time.perf_counter()
            samples.append((now - last) * 1000)
            last = now
        return samples, last - began


def main(reference: str, modes: str, sizes: str) -> dict[str, Any]:
    """Time an artifact and what it is compared with.

    Args:
        modes: Modes of `torch.compile`, with commas between them.
        sizes: Sizes of the dynamic dimensions, as JSON.
    """
    local = pt2hub.pull(reference)
    module = _module(local)
    first, second = (_inputs(local, json.loads(sizes), draw) for draw in (0, 1))
    calls: dict[str, Callable[..., Any]] = {
        "artifact": pt2hub.load(reference, cuda_graph=False),
        "eager": copy.deepcopy(module),  # each has buffers of its own: a model may write to them
    }
    calls |= {
        f"compile {mode}": torch.compile(copy.deepcopy(module), mode=mode)
        for mode in modes.split(",")
        if mode
    }
    if torch.cuda.is_available():
        calls["artifact_graph"] = pt2hub.load(reference, cuda_graph=True)
    with torch.inference_mode():
        expected, other = copy.deepcopy(module)(**first), copy.deepcopy(module)(**second)
        found, failed = _call_first(calls, first, expected)
        ready = {name: call for name, call in calls.items() if name not in failed}
        timed = time_alternating(
            [lambda call=call: call(**first) for call in ready.values()], WaitedClock(), seconds=SECONDS
        )
    scale = rms_difference(expected, other)
    return {
        "p50_ms": {name: round(item.quantile(0.5), 4) for name, item in zip(ready, timed, strict=True)},
        "p99_ms": {name: round(item.quantile(0.99), 4) for name, item in zip(ready, timed, strict=True)},
        "calls": {name: item.calls for name, item in zip(ready, timed, strict=True)},
        "first_call_s": {name: seconds for name, (seconds, _) in found.items()},
        "relative_error": {name: error / scale for name, (_, error) in found.items()},
        "failed": failed,
    }


def _call_first(
    calls: dict[str, Callable[..., Any]], inputs: dict[str, Any], expected: Any
) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Return seconds and error of each first call; and the reasons of those that failed."""
    found, failed = {}, {}
    for name, call in calls.items():
        began = time.perf_counter()
        try:
            output = call(**inputs)
            _wait()
        except Exception as error:  # noqa: BLE001  # Dynamo and Inductor raise their own
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            continue
        found[name] = round(time.perf_counter() - began, 3), max_difference(output, expected)
        print(f"{name}: first call {found[name][0]} s", file=sys.stderr, flush=True)
    return found, failed


def _module(local: LocalArtifact) -> torch.nn.Module:
    """Return the version's model on the device, with the artifact's weights in their dtypes."""
    spec = read_spec(local)
    if isinstance(spec.source, FactorySource):
        module = build_model(spec.source)
    else:
        sys.path.insert(0, str(CODE))
        name, entry = spec.source.entry.split(":")
        torch.manual_seed(spec.source.seed)
        module = getattr(importlib.import_module(name), entry)(**spec.source.kwargs)
    module = adapt_model(module, spec)
    if spec.dtype is not None:
        module = module.to(getattr(torch, spec.dtype))
    load_weights(module, local.weights)
    return module.to(local.config.signature.device)


def _inputs(local: LocalArtifact, sizes: dict[str, int], draw: int) -> dict[str, Any]:
    """Return a call's arguments in the artifact's dtypes."""
    made = make_inputs(read_spec(local), Point("example", sizes, draw), {})
    signature = local.config.signature
    moved = {
        item.name: made[item.name].to(device=signature.device, dtype=getattr(torch, item.dtype))
        for item in signature.inputs
    }
    return arguments(moved)


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
