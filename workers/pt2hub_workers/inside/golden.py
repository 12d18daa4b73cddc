"""Golden inputs and outputs of a version: what every later build of it must reproduce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch

from pt2hub.domain.digests import digest_file
from pt2hub.errors import Pt2hubError, SourceDrifted
from pt2hub_workers.inside import comparing, eager, files
from pt2hub_workers.inside.inputs import Point, Tensors
from pt2hub_workers.inside.trial import EXAMPLE, OTHER, SMALLEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

GOLDEN_SCHEMA = 1
DRIFT_TOLERANCE = 1.0e-3
"""How far a rebuild's own outputs may lie from the golden ones, relative to signal: other CPUs, GPUs
and torch releases add in another order; another model is off by about the signal."""
DRIFT_ROUNDING = 8.0
"""Or this many times eager's own error against float64, on the machine of the golden outputs or on this one."""

Outputs = list[torch.Tensor]
PerPoint = dict[str, list[float]]
"""One number per output, by point label."""


@dataclass(frozen=True, slots=True)
class Golden:
    """Golden inputs and outputs of a version.

    Attributes:
        points: The points, in order.
        inputs: Inputs by point label.
        single: float32 (or the model's own dtype) eager outputs by point label.
        double: float64 outputs by point label, where float64 ran.
        notes: Why float64 is missing, and the like.
    """

    points: tuple[Point, ...]
    inputs: dict[str, Tensors]
    single: dict[str, Outputs]
    double: dict[str, Outputs]
    notes: tuple[str, ...] = ()

    def best(self, label: str) -> Outputs:
        """The most precise outputs of a point."""
        return self.double.get(label) or self.single[label]

    def signals(self) -> PerPoint:
        """Each output's signal at each point, root mean square.

        Measured at the example, as the difference between two draws, and scaled by the output's size at the
        other points: a sum over a batch of thousands has a signal of thousands. Not at the smallest point,
        where a model may rightly stand still (attention over one key).
        """
        pairs = zip(self.best(EXAMPLE), self.best(OTHER), strict=True)
        example = [comparing.spread(left, right) for left, right in pairs]
        return {point.label: self.scaled(example, point.label) for point in self.points}

    def scaled(self, values: list[float], label: str) -> list[float]:
        """Values of the example point, scaled to the size of the outputs at another point."""
        sizes = zip(self.best(label), self.best(EXAMPLE), strict=True)
        return [value * comparing.ratio(*pair) for value, pair in zip(values, sizes, strict=True)]

    def errors_of(self, own: Mapping[str, Outputs]) -> PerPoint:
        """Each output's error in a float32 (or narrower) eager run, against the most precise outputs.

        Args:
            own: Eager outputs by point label, of this module or of one in another dtype. Where a point has no
                float64 outputs, the error at the example stands in, scaled.
        """

        def at(label: str) -> list[float]:
            pairs = zip(own[label], self.best(label), strict=True)
            return [comparing.difference(left, right) for left, right in pairs]

        example = at(EXAMPLE)
        return {p.label: [*map(max, at(p.label), self.scaled(example, p.label))] for p in self.points}


@dataclass(frozen=True, slots=True)
class Given:
    """Inputs, and what a model returned for them.

    Attributes:
        label: Of the point.
        inputs: As the target takes them.
        outputs: The model's own.
    """

    label: str
    inputs: Tensors
    outputs: Outputs


def make_golden(
    module: torch.nn.Module, points: Iterable[Point], inputs: dict[str, Tensors], seen: Iterable[Given] = ()
) -> Golden:
    """Computes the golden outputs: eager at every point, float64 at the smallest and the example.

    Args:
        module: The model, in its own dtype.
        points: Where.
        inputs: By point label.
        seen: What the same model returned already; it is not run again on the same inputs.

    Raises:
        NanOutput: The model's own output is not finite at one of the points.
    """
    chosen = tuple(points)
    device = eager.device_of(module)
    moved = {label: {k: v.to(device) for k, v in tensors.items()} for label, tensors in inputs.items()}
    known = {
        item.label: item.outputs for item in seen if _same_inputs(item.inputs, moved.get(item.label, {}))
    }
    single = {
        point.label: known.get(point.label) or eager.run_flat(module, moved[point.label]) for point in chosen
    }
    for label, outputs in single.items():
        eager.check_finite(outputs, inputs[label])
    double: dict[str, Outputs] = {}
    notes: list[str] = []
    try:
        precise = eager.in_double(module)
        for point in chosen:
            if point.label in (EXAMPLE, SMALLEST):
                wide = eager.converted(moved[point.label], torch.float64)
                double[point.label] = eager.run_flat(precise, wide)
    except (Pt2hubError, RuntimeError, TypeError) as error:
        double = {}
        notes.append(f"no float64 reference, eager serves instead: {' '.join(str(error).split())[:300]}")
    return Golden(chosen, inputs, single, double, tuple(notes))


def _same_inputs(left: Tensors, right: Tensors) -> bool:
    return left.keys() == right.keys() and all(
        tensor.dtype == right[name].dtype and torch.equal(tensor, right[name])
        for name, tensor in left.items()
    )


def save_golden(golden: Golden, room: Path) -> dict[str, Any]:
    """Writes golden inputs and outputs as two files; the document that names them is the golden blob.

    Two files, since inputs depend on the spec's inputs alone: a retrained version finds them stored.
    """
    inputs = {f"{label}/{name}": t for label, group in golden.inputs.items() for name, t in group.items()}
    outputs = {
        f"{label}/{kind}/{index}": tensor
        for kind, group in (("single", golden.single), ("double", golden.double))
        for label, tensors in group.items()
        for index, tensor in enumerate(tensors)
    }
    paths = {name: room / path for name, path in files.GOLDEN.items()}
    for name, tensors in (("inputs", inputs), ("outputs", outputs)):
        safetensors.torch.save_file({k: v.contiguous().clone() for k, v in tensors.items()}, paths[name])
    return {
        "schema": GOLDEN_SCHEMA,
        **{name: digest_file(path) for name, path in paths.items()},
        "points": [{"name": p.name, "sizes": dict(p.sizes), "draw": p.draw} for p in golden.points],
        "notes": list(golden.notes),
    }


def load_golden(document: Mapping[str, Any], inputs: Path, outputs: Path) -> Golden:
    """Reads what `save_golden` wrote."""
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


def check_drift(stored: Golden, module: torch.nn.Module, seen: Iterable[Given] = ()) -> Golden:
    """Refuses a source that no longer computes what it computed for the version's first build.

    Args:
        stored: The version's golden values.
        module: The module as built now, with the version's weights, in its own dtype.
        seen: What it returned already.

    Returns:
        The same values as this machine computes them.

    Raises:
        SourceDrifted: An output differs by more than rounding explains.
    """
    now = make_golden(module, stored.points, stored.inputs, seen)
    signals, theirs, ours = stored.signals(), stored.errors_of(stored.single), now.errors_of(now.single)
    both = bool(
        stored.double and now.double
    )  # in float64 devices agree, where tf32 alone is off by the tolerance
    for label in (point.label for point in stored.points):
        before = stored.best(label) if both else stored.single[label]
        after = now.best(label) if both else now.single[label]
        same = [left.shape for left in before] == [right.shape for right in after]
        for index, (left, right) in enumerate(zip(before, after, strict=False)):
            gap = comparing.difference(left, right) if same else float("inf")
            rounding = DRIFT_ROUNDING * max(theirs[label][index], ours[label][index]) if same else 0.0
            allowed = max(DRIFT_TOLERANCE * signals[label][index], rounding)
            if gap > allowed:
                raise SourceDrifted(
                    f"output {index} at {label} is {gap:.3g} away from the golden output; "
                    f"rounding explains {allowed:.3g}",
                    where="source",
                    hint="The installed package computes something else than when this version was first "
                    "built. Publish a new version, or build on a worker with the pinned packages.",
                )
    return now
