"""Reference files of verification: golden outputs, and eager's responses to perturbed weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import safetensors.torch
import torch

from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.verify.run_order import EXPECTED_KEY, INPUTS_KEY
from pt2hub_workers.inside.builds.verify.tensor_conversions import dtype_name, to_storable
from pt2hub_workers.inside.builds.verify.tolerances import Allowance, base_allowances

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pt2hub_workers.inside.builds.verify.eager_responses import Response
    from pt2hub_workers.inside.builds.verify.golden import Golden, PerPoint

Outputs = list[torch.Tensor]
Allowances = dict[str, list[Allowance]]
"""Allowances at the golden weights, per output, by point label."""


def compute_allowances(
    golden: Golden, own: Mapping[str, Outputs], tolerance: float, explained: PerPoint | None = None
) -> Allowances:
    """Compute the allowances at the golden weights.

    Args:
        explained: The largest error of eager that rounding explains, per output, if it was computed.
    """
    signals, errors = golden.signals(), golden.errors_of(own)
    for label, most in (explained or {}).items():
        errors[label] = [*map(min, errors[label], most)]
    return {
        label: base_allowances(
            signals[label], errors[label], tolerance, rounding=[*map(differences.rounding_limit, own[label])]
        )
        for label in signals
    }


def save_verification_inputs(found: list[Response], golden: Golden, path: Path) -> None:
    """Write the inputs and perturbations for the artifact's process, without any outputs."""
    tensors = {
        f"input/{label}/{name}": tensor.contiguous().clone()
        for label, inputs in golden.inputs.items()
        for name, tensor in inputs.items()
    }
    document = {
        "points": [{"label": point.label, "sizes": dict(point.sizes)} for point in golden.points],
        "groups": [asdict(item.group) for item in found],
    }
    safetensors.torch.save_file(tensors, path, metadata={INPUTS_KEY: json.dumps(document)})


def save_expected(
    found: list[Response],
    base: Allowances,
    golden: Golden,
    own: Mapping[str, Outputs],
    path: Path,
    *,
    again: Outputs | None = None,
) -> None:
    """Write the expected outputs for the verifier: golden outputs, responses, and allowances.

    Args:
        again: Outputs of a second call on the example, for models whose buffers make it differ from the first.
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
    packed = {name: to_storable(tensor) for name, tensor in tensors.items()}
    safetensors.torch.save_file(packed, path, metadata={EXPECTED_KEY: json.dumps(document)})
