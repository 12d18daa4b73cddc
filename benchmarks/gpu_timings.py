"""A fresh process of the GPU results: `python benchmarks/gpu_timings.py REFS MODES SIZES` prints one JSON object.

Artifacts of one model, without and with CUDA graphs, the model in eager mode and under each mode of `torch.compile` live in
one process and take turns. Every call is waited for, as one that answers a request is.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.async_compile import shutdown_compile_workers
from torch.utils import _pytree as pytree

import pt2hub
from gpu_entries import CODE
from pt2hub.client.publishing.live_models.module_copies import copy_module
from pt2hub.domain.publishing.spec import FactorySource
from pt2hub_workers.inside.builds.compile.weights import load_weights
from pt2hub_workers.inside.builds.differences import max_difference, rms_difference
from pt2hub_workers.inside.builds.export.adapter import adapt_model
from pt2hub_workers.inside.builds.export.call import arguments
from pt2hub_workers.inside.builds.export.inputs import Point, make_inputs
from pt2hub_workers.inside.performance.timer import MAX_BLOCK_SECONDS, TimedCall, time_alternating
from pt2hub_workers.performance.demonstration import build_model, read_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.client.artifacts.local import LocalArtifact

SECONDS = 0.5
"""Of each implementation's calls."""
FIRST_CALL_SECONDS = 150.0
"""Limit of a first call under `torch.compile`: autotuning all convolutions of resnet18 has taken four minutes."""
COMPILED = "compile "
"""Before a mode of `torch.compile`, in names of implementations."""


def wait() -> None:
    """Wait until the device has finished its work."""
    if torch.cuda.is_available():  # the script can be tried on a CPU
        torch.cuda.synchronize()


class WaitedClock:
    """Times each call until the device has finished it."""

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        wait()

    def block(self, call: Callable[[], object], count: int) -> tuple[list[float], float]:
        """Return milliseconds of each call, and the seconds of all."""
        samples: list[float] = []
        began = last = time.perf_counter()
        while len(samples) < count and last - began < MAX_BLOCK_SECONDS:
            call()
            wait()
            now = time.perf_counter()
            samples.append((now - last) * 1000)
            last = now
        return samples, last - began


def main(references: str, modes: str, sizes: str) -> dict[str, dict[str, Any]]:
    """Time artifacts of one model, and what they are compared with; return what is known about each by its name.

    Args:
        references: References by name, as JSON.
        modes: Modes of `torch.compile`, with commas between them.
        sizes: Sizes of the dynamic dimensions, as JSON.
    """
    given: dict[str, str] = json.loads(references)
    local = pt2hub.pull(next(iter(given.values())))
    module = _module(local)
    first, second = (_inputs(local, json.loads(sizes), draw) for draw in (0, 1))
    with torch.inference_mode():
        expected, other = copy_module(module)(**first), copy_module(module)(**second)
        run = _Run(first, expected, other)
        for name, call in _calls(given, module, modes.split(",") if modes else []):
            run.call_first(name, call)
        shutdown_compile_workers()  # their processes take time from the calls
        timed = run.time()
    return {name: run.describe(name, list(given), timed) for name in given}


def _calls(
    given: dict[str, str], module: torch.nn.Module, modes: list[str]
) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what is called: the artifacts, eager mode, the modes of `torch.compile`, and the artifacts with graphs."""
    for name, reference in given.items():
        yield f"{name} artifact", pt2hub.load(reference, cuda_graph=False)
    yield "eager", copy_module(module)  # each has buffers of its own: a model may write to them
    for mode in modes:
        yield f"{COMPILED}{mode}", torch.compile(copy_module(module), mode=mode)
    if torch.cuda.is_available():
        for name, reference in given.items():
            yield f"{name} artifact_graph", pt2hub.load(reference, cuda_graph=True)


class _Run:
    """First calls of implementations, and their times in turns."""

    def __init__(self, inputs: dict[str, Any], expected: Any, other: Any) -> None:
        self._inputs = inputs
        self._expected = pytree.tree_leaves(expected)
        self._scales = [
            rms_difference(*pair) for pair in zip(self._expected, pytree.tree_leaves(other), strict=True)
        ]
        self._ready: dict[str, Callable[..., Any]] = {}
        self._first: dict[str, float] = {}
        self._errors: dict[str, float] = {}
        self._failed: dict[str, str] = {}

    def call_first(self, name: str, call: Callable[..., Any]) -> None:
        """Call an implementation, with a time limit if it compiles."""
        began = time.perf_counter()
        try:
            with time_limit(FIRST_CALL_SECONDS if name.startswith(COMPILED) else 0):
                output = call(**self._inputs)
                wait()
        except Exception as error:  # noqa: BLE001  # Dynamo and Inductor raise their own
            self._failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            print(f"{name}: {self._failed[name]}", file=sys.stderr, flush=True)
            return
        self._ready[name] = call
        self._first[name] = round(time.perf_counter() - began, 6)
        self._errors[name] = _relative_error(output, self._expected, self._scales)
        print(f"{name}: first call {self._first[name]} s", file=sys.stderr, flush=True)

    def time(self) -> dict[str, TimedCall]:
        """Return the times of what could be called, by name."""
        calls = [lambda call=call: call(**self._inputs) for call in self._ready.values()]
        return dict(zip(self._ready, time_alternating(calls, WaitedClock(), seconds=SECONDS), strict=True))

    def describe(self, own: str, names: list[str], timed: dict[str, TimedCall]) -> dict[str, Any]:
        """Return what is known about one artifact and what it is compared with, without the other artifacts."""

        def select(found: dict[str, Any]) -> dict[str, Any]:
            others = tuple(f"{name} " for name in names if name != own)
            return {k.removeprefix(f"{own} "): v for k, v in found.items() if not k.startswith(others)}

        return {
            "p50_ms": select({name: round(item.quantile(0.5), 4) for name, item in timed.items()}),
            "p99_ms": select({name: round(item.quantile(0.99), 4) for name, item in timed.items()}),
            "calls": select({name: item.calls for name, item in timed.items()}),
            "first_call_s": select(self._first),
            "relative_error": select(self._errors),
            "failed": select(self._failed),
        }


def _relative_error(output: Any, expected: list[torch.Tensor], scales: list[float]) -> float:
    """Return the largest error of all outputs, each as a share of what other inputs change in it."""
    found = zip(pytree.tree_leaves(output), expected, scales, strict=True)
    return max(max_difference(left, right) / scale for left, right, scale in found)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after some seconds, and again each second: a compiler may catch it; 0 is no limit."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
