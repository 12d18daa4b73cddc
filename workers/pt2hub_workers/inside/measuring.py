"""Latency of the artifact and what it is compared with, interleaved in one run."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.client.contract import call_with
from pt2hub.client.loader import LoadedModel
from pt2hub_workers.inside.calling import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub_workers.inside.inputs import Tensors

WARM_UP = 2
ROUNDS = 12
BUDGET_SECONDS = 0.25
"""Rounds stop early here: measuring must not cost more than the build is worth."""
LEAST_ROUNDS = 5


def latencies(subjects: Mapping[str, Callable[[], Any]], *, device: str) -> dict[str, list[float]]:
    """Milliseconds of each call, the subjects taking turns so that drift of the machine meets all alike.

    Args:
        subjects: What to call, by name; each is warmed up first.
        device: On `cuda` the device is synchronised before each reading of the clock.
    """
    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    for call in subjects.values():
        for _ in range(WARM_UP):
            call()
    samples: dict[str, list[float]] = {name: [] for name in subjects}
    end = time.monotonic() + BUDGET_SECONDS * len(subjects)
    for done in range(ROUNDS):
        if done >= LEAST_ROUNDS and time.monotonic() > end:
            break
        for name, call in subjects.items():
            wait()
            started = time.perf_counter()
            call()
            wait()
            samples[name].append((time.perf_counter() - started) * 1000)
    return samples


def compiled_or_why(module: torch.nn.Module, inputs: Tensors) -> tuple[Callable[..., Any] | None, str]:
    """The model as torch.compile makes it, run once; or None and why it failed.

    A proven artifact is published whether or not torch.compile can be timed beside it.
    """
    try:
        compiled: Callable[..., Any] = torch.compile(module)
        args, kwargs = in_order(module, inputs)
        with torch.inference_mode():
            compiled(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  # Dynamo, Inductor and the C++ compiler each raise their own
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return compiled, ""


def measure(
    module: torch.nn.Module,
    artifact: LoadedModel,
    inputs: Tensors,
    *,
    device: str,
    others: Mapping[str, Callable[..., Any] | None],
) -> list[dict[str, Any]]:
    """Measures at the example size.

    Args:
        module: The model in eager mode, on the device.
        artifact: The artifact, loaded.
        inputs: Example inputs on the device.
        device: `cpu` or `cuda`.
        others: What else takes part, by its subject, such as the model as torch.compile made it.

    Returns:
        Measurements as the server keeps them: metric, value, unit, batch, subject, samples.
    """
    args, kwargs = in_order(module, inputs)  # put together before, and not timed
    subjects: dict[str, Callable[[], Any]] = {}
    for name, call in {"artifact": artifact, "eager": module, **others}.items():
        if isinstance(call, LoadedModel):
            subjects[name] = partial(call, **call_with(call.config.signature, inputs))
        elif call is not None:  # a compiled module has a length only where the module has
            subjects[name] = partial(call, *args, **kwargs)
    with torch.inference_mode():
        samples = latencies(subjects, device=device)
    batch = next((tensor.shape[0] for tensor in inputs.values() if tensor.dim()), None)
    return [
        {
            "metric": "latency_p50",
            "value": statistics.median(values),
            "unit": "ms",
            "batch": batch,
            "subject": name,
            "samples": [round(value, 4) for value in values],
        }
        for name, values in samples.items()
    ]


def _nothing() -> None:
    """The CPU needs no synchronisation."""
