"""Golden inputs and outputs of a version, which every later build of it must reproduce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch

from pt2hub.domain.digests import digest_file
from pt2hub.errors import Pt2hubError, SourceDrifted
from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.export import eager
from pt2hub_workers.inside.builds.export.inputs import Point, Tensors
from pt2hub_workers.inside.builds.verify.run_order import EXAMPLE, OTHER, SMALLEST
from pt2hub_workers.inside.operations import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

GOLDEN_SCHEMA = 1
DRIFT_TOLERANCE = 1.0e-3
"""Maximum difference between a rebuild's own outputs and the golden ones, relative to the signal: other CPUs, GPUs and
torch releases add in another order; another model is off by about the signal."""
DRIFT_ROUNDING = 8.0
"""Alternative maximum: this many times eager's error against float64, on the machine of the golden outputs or on this
one."""

Outputs = list[torch.Tensor]
PerPoint = dict[str, list[float]]
"""One number per output, by point label."""


@dataclass(frozen=True, slots=True)
class Golden:
    """Golden inputs and outputs of a version.

    Attributes:
        single: float32 (or the model's own dtype) eager outputs by point label.
        double: float64 outputs by point label, if the model runs in float64.
        notes: Remarks for the report, such as why float64 is missing.
    """

    points: tuple[Point, ...]
    inputs: dict[str, Tensors]
    single: dict[str, Outputs]
    double: dict[str, Outputs]
    notes: tuple[str, ...] = ()

    def best(self, label: str) -> Outputs:
        """Return the most precise outputs of a point."""
        return self.double.get(label) or self.single[label]

    def signals(self) -> PerPoint:
        """Return each output's signal at each point, root mean square.

        Measured at the example, as the difference between two draws, and scaled by the output's size at the
        other points: a sum over a batch of thousands has a signal of thousands. Not at the smallest point, where a
        correct model may not move at all (attention over one key).
        """
        pairs = zip(self.best(EXAMPLE), self.best(OTHER), strict=True)
        example = [differences.rms_difference(left, right) for left, right in pairs]
        return {point.label: self.scale(example, point.label) for point in self.points}

    def scale(self, values: list[float], label: str) -> list[float]:
        """Scale values of the example point to the size of the outputs at another point."""
        sizes = zip(self.best(label), self.best(EXAMPLE), strict=True)
        return [value * differences.rms_ratio(*pair) for value, pair in zip(values, sizes, strict=True)]

    def errors_of(self, own: Mapping[str, Outputs]) -> PerPoint:
        """Return each output's error in a float32 (or narrower) eager run, against the most precise outputs.

        Args:
            own: Eager outputs by point label, of this module or of one in another dtype. If a point has no float64
                outputs, the scaled error at the example is used.
        """

        def at(label: str) -> list[float]:
            pairs = zip(own[label], self.best(label), strict=True)
            return [differences.max_difference(left, right) for left, right in pairs]

        example = at(EXAMPLE)
        return {p.label: [*map(max, at(p.label), self.scale(example, p.label))] for p in self.points}


@dataclass(frozen=True, slots=True)
class GoldenInputs:
    """Inputs and the model's outputs for them."""

    label: str
    inputs: Tensors
    outputs: Outputs


def make_golden(
    module: torch.nn.Module,
    points: Iterable[Point],
    inputs: dict[str, Tensors],
    seen: Iterable[GoldenInputs] = (),
) -> Golden:
    """Compute the golden outputs: eager at every point, float64 at the smallest and the example."""
    chosen = tuple(points)
    device = eager.find_device(module)
    moved = {label: {k: v.to(device) for k, v in tensors.items()} for label, tensors in inputs.items()}
    known = {
        item.label: item.outputs for item in seen if _is_same_inputs(item.inputs, moved.get(item.label, {}))
    }
    single = {
        point.label: known.get(point.label) or eager.run_flat(module, moved[point.label]) for point in chosen
    }
    for label, outputs in single.items():
        eager.check_finite(outputs, inputs[label])
    double: dict[str, Outputs] = {}
    notes: list[str] = []
    try:
        precise = eager.to_double(module)
        for point in chosen:
            if point.label in (EXAMPLE, SMALLEST):
                wide = eager.convert_inputs(moved[point.label], torch.float64)
                double[point.label] = eager.run_flat(precise, wide)
    except (Pt2hubError, RuntimeError, TypeError) as error:
        double = {}
        notes.append(f"no float64 reference, eager serves instead: {' '.join(str(error).split())[:300]}")
    return Golden(chosen, inputs, single, double, tuple(notes))


def _is_same_inputs(left: Tensors, right: Tensors) -> bool:
    return left.keys() == right.keys() and all(
        tensor.dtype == right[name].dtype and torch.equal(tensor, right[name])
        for name, tensor in left.items()
    )


def save_golden(golden: Golden, workspace: Path) -> dict[str, Any]:
    """Write golden inputs and outputs as two files; return the document that names them, the golden blob.

    There are two files because inputs depend on the spec's inputs alone: a retrained version finds them stored.
    """
    inputs = {f"{label}/{name}": t for label, group in golden.inputs.items() for name, t in group.items()}
    outputs = {
        f"{label}/{kind}/{index}": tensor
        for kind, group in (("single", golden.single), ("double", golden.double))
        for label, tensors in group.items()
        for index, tensor in enumerate(tensors)
    }
    paths = {name: workspace / path for name, path in files.GOLDEN.items()}
    for name, tensors in (("inputs", inputs), ("outputs", outputs)):
        safetensors.torch.save_file({k: v.contiguous().clone() for k, v in tensors.items()}, paths[name])
    return {
        "schema": GOLDEN_SCHEMA,
        **{name: digest_file(path) for name, path in paths.items()},
        "points": [{"name": p.name, "sizes": dict(p.sizes), "draw": p.draw} for p in golden.points],
        "notes": list(golden.notes),
    }


def load_golden(document: Mapping[str, Any], inputs: Path, outputs: Path) -> Golden:
    """Read what `save_golden` wrote."""
    points = tuple(Point(item["name"], item["sizes"], item["draw"]) for item in document["points"])
    given: dict[str, Tensors] = {}
    for key, tensor in safetensors.torch.load_file(inputs).items():
        label, _, name = key.partition("/")
        given.setdefault(label, {})[name] = tensor
    groups: dict[str, dict[str, dict[int, torch.Tensor]]] = {"single": {}, "double": {}}
    for key, tensor in safetensors.torch.load_file(outputs).items():
        label, kind, index = key.split("/")
        groups[kind].setdefault(label, {})[int(index)] = tensor
    listed = {k: {label: [o[i] for i in sorted(o)] for label, o in v.items()} for k, v in groups.items()}
    return Golden(points, given, listed["single"], listed["double"], tuple(document["notes"]))


def check_drift(stored: Golden, module: torch.nn.Module, seen: Iterable[GoldenInputs] = ()) -> Golden:
    """Refuse a source that no longer reproduces the outputs of the version's first build."""
    now = make_golden(module, stored.points, stored.inputs, seen)
    signals, theirs, ours = stored.signals(), stored.errors_of(stored.single), now.errors_of(now.single)
    both = bool(
        stored.double and now.double
    )  # devices agree in float64, while tf32 alone is off by the tolerance
    for label in (point.label for point in stored.points):
        before = stored.best(label) if both else stored.single[label]
        after = now.best(label) if both else now.single[label]
        same = [left.shape for left in before] == [right.shape for right in after]
        for index, (left, right) in enumerate(zip(before, after, strict=False)):
            gap = differences.max_difference(left, right) if same else float("inf")
            rounding = DRIFT_ROUNDING * max(theirs[label][index], ours[label][index]) if same else 0.0
            allowed = max(DRIFT_TOLERANCE * signals[label][index], rounding)
            if gap > allowed:
                raise SourceDrifted(
                    f"output {index} at {label} differs from the golden output by {gap:.3g}; "
                    f"rounding explains {allowed:.3g}",
                    where="source",
                    hint="The installed package computes something different than at this version's first build. "
                    "Publish a new version, or build on a worker with the pinned packages.",
                )
    return now
