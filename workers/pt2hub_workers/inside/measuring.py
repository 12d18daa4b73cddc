"""What the artifact is compared with in the build's own process, so that ratios survive a change of machine.

That is the model in eager mode, as torch.compile makes it, and in its split form, interleaved with the artifact.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.client.contract import call_with
from pt2hub.client.loader import LoadedModel
from pt2hub_workers.inside.calling import in_order
from pt2hub_workers.inside.timing import alternate, clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub_workers.inside.inputs import Tensors
    from pt2hub_workers.inside.timing import Timed

BUDGET_SECONDS = 0.25
"""Of each subject: it is one process, whose calls are one observation however many they are."""


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
    batch: int | None,
    others: Mapping[str, Callable[..., Any] | None],
) -> list[dict[str, Any]]:
    """Measures at the example size.

    Args:
        module: The model in eager mode, on the device.
        artifact: The artifact, loaded.
        inputs: Example inputs on the device.
        batch: Their batch size.
        others: What else takes part, by its subject, such as the model as torch.compile made it.

    Returns:
        Fields of `Measurement`: the median of everything but the artifact, and how many times the artifact's own it is.
    """
    args, kwargs = in_order(module, inputs)  # put together before, and not timed
    subjects: dict[str, Callable[[], Any]] = {}
    for name, call in {"artifact": artifact, "eager": module, **others}.items():
        if isinstance(call, LoadedModel):
            subjects[name] = partial(call, **call_with(call.config.signature, inputs))
        elif call is not None:  # a compiled module has a length only where the module has
            subjects[name] = partial(call, *args, **kwargs)
    with torch.inference_mode():
        clock = clock_of(artifact.config.signature.device)
        own, *found = alternate(list(subjects.values()), clock, seconds=BUDGET_SECONDS)
    names = list(subjects)[1:]
    return [
        row
        for name, timed in zip(names, found, strict=True)
        for row in _rows(name, timed, own.quantile(0.5), batch)
    ]


def _rows(subject: str, timed: Timed, own: float, batch: int | None) -> list[dict[str, Any]]:
    median = timed.quantile(0.5)
    latency = {"metric": "latency_p50", "value": median, "unit": "ms", "samples": [timed.thinned()]}
    speedup = {"metric": "speedup", "value": median / own, "unit": "1", "samples": None}
    return [
        {**row, "subject": subject, "batch": batch, "replicates": [row["value"]]}
        for row in (latency, speedup)
    ]
