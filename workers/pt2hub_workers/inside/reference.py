"""What the gate compares with: golden outputs, and eager's response to other weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import safetensors.torch
import torch

from pt2hub_workers.inside import comparing
from pt2hub_workers.inside.allowances import Allowance, base_allowances
from pt2hub_workers.inside.tensors import dtype_name, storable
from pt2hub_workers.inside.trial import EXPECTED, TRIAL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pt2hub_workers.inside.golden import Golden, PerPoint
    from pt2hub_workers.inside.responses import Response

Outputs = list[torch.Tensor]
Allowances = dict[str, list[Allowance]]
"""What passes at the golden weights, per output, by point label."""


def golden_allowances(
    golden: Golden, own: Mapping[str, Outputs], tolerance: float, explained: PerPoint | None = None
) -> Allowances:
    """What passes at the golden weights.

    Args:
        golden: The version's golden values.
        own: Eager outputs on this target by point label: its own error is what rounding explains here, not that
            of the machine which made the golden values.
        tolerance: Relative to signal.
        explained: The most that rounding explains of eager's own error, per output, where that was asked.
    """
    signals, errors = golden.signals(), golden.errors_of(own)
    for label, most in (explained or {}).items():
        errors[label] = [*map(min, errors[label], most)]
    return {
        label: base_allowances(
            signals[label], errors[label], tolerance, rounding=[*map(comparing.rounding, own[label])]
        )
        for label in signals
    }


def save_trial(found: list[Response], golden: Golden, path: Path) -> None:
    """Writes what the gate's process needs: inputs and perturbations, and no outputs."""
    tensors = {
        f"input/{label}/{name}": tensor.contiguous().clone()
        for label, inputs in golden.inputs.items()
        for name, tensor in inputs.items()
    }
    document = {
        "points": [{"label": point.label, "sizes": dict(point.sizes)} for point in golden.points],
        "groups": [asdict(item.group) for item in found],
    }
    safetensors.torch.save_file(tensors, path, metadata={TRIAL: json.dumps(document)})


def save_expected(
    found: list[Response],
    base: Allowances,
    golden: Golden,
    own: Mapping[str, Outputs],
    path: Path,
    *,
    again: Outputs | None = None,
) -> None:
    """Writes what the judge compares with: golden outputs, responses, and what may differ.

    Args:
        found: Responses to perturbed constants.
        base: What passes at the golden weights.
        golden: The version's golden values.
        own: Eager outputs on this target by point label, for their dtypes.
        path: Where to.
        again: Outputs of a second call on the example, where the model's buffers make it another than the first.
    """
    tensors = {f"group/{n}/{i}": t for n, item in enumerate(found) for i, t in enumerate(item.outputs)}
    tensors |= {f"again/{i}": tensor for i, tensor in enumerate(again or ())}
    for point in golden.points:
        best = golden.best(point.label)
        tensors |= {f"golden/{point.label}/{i}": tensor for i, tensor in enumerate(best)}
    document = {
        "points": [point.label for point in golden.points],
        "base": {label: [item.as_dict() for item in allowed] for label, allowed in base.items()},
        "groups": [
            {"name": item.group.name, "allowances": [a.as_dict() for a in item.allowances]} for item in found
        ],
        "again": again is not None,
        "dtypes": {label: [dtype_name(tensor) for tensor in outputs] for label, outputs in own.items()},
    }
    packed = {name: storable(tensor) for name, tensor in tensors.items()}
    safetensors.torch.save_file(packed, path, metadata={EXPECTED: json.dumps(document)})
