"""What the artifact is compared with: golden outputs of the version, and eager's response to other weights."""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch

from pt2hub.domain.digests import digest_file
from pt2hub.errors import Pt2hubError, SourceDrifted
from pt2hub_workers.inside import comparing, eager
from pt2hub_workers.inside.inputs import Point, Tensors
from pt2hub_workers.inside.perturbing import Group, groups_of, perturb
from pt2hub_workers.inside.weights import named_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


GOLDEN_SCHEMA = 1
DRIFT_TOLERANCE = 1.0e-3
"""How far a rebuild's own outputs may lie from the golden ones, relative to signal: other CPUs, GPUs
and torch releases add in another order; another model is off by about the signal."""
DRIFT_ROUNDING = 8.0
"""Or this many times eager's own error against float64, on the machine of the golden outputs or on this one."""
MAX_SCALE = 256.0
"""Largest multiple of the base noise: a layer whose response is lost in rounding is moved further."""


GROWTH = 4.0
"""Factor between tries."""

Outputs = list[torch.Tensor]


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


def make_golden(module: torch.nn.Module, points: Iterable[Point], inputs: dict[str, Tensors]) -> Golden:
    """Computes the golden outputs: eager at every point, float64 at the smallest and the example.

    Raises:
        NanOutput: The model's own output is not finite at one of the points.
    """
    chosen = tuple(points)
    device = _device(module)
    moved = {label: {k: v.to(device) for k, v in tensors.items()} for label, tensors in inputs.items()}
    single = {point.label: eager.run_flat(module, moved[point.label]) for point in chosen}
    for label, outputs in single.items():
        eager.check_finite(outputs, inputs[label])
    double: dict[str, Outputs] = {}
    notes: list[str] = []
    try:
        precise = eager.in_double(module)
        for point in chosen:
            if point.name != "largest":
                wide = eager.converted(moved[point.label], torch.float64)
                double[point.label] = eager.run_flat(precise, wide)
    except (Pt2hubError, RuntimeError, TypeError) as error:
        double = {}
        notes.append(f"no float64 reference, eager serves instead: {' '.join(str(error).split())[:300]}")
    return Golden(chosen, inputs, single, double, tuple(notes))


def save_golden(golden: Golden, directory: Path) -> dict[str, Any]:
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
    paths = {
        "inputs": directory / "golden-inputs.safetensors",
        "outputs": directory / "golden-outputs.safetensors",
    }
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


def check_drift(stored: Golden, module: torch.nn.Module, eager_tolerance: float = DRIFT_TOLERANCE) -> None:
    """Refuses a source that no longer computes what it computed for the version's first build.

    Args:
        stored: The version's golden values.
        module: The module as built now, with the version's weights, in its own dtype.
        eager_tolerance: Allowed difference relative to signal.

    Raises:
        SourceDrifted: An output differs by more than rounding explains.
    """
    now = make_golden(module, stored.points, stored.inputs)
    signals, rounding = signals_of(stored), [*map(max, _rounding(stored), _rounding(now))]
    for point in stored.points:
        if stored.double and now.double:  # in float64 devices agree, where tf32 alone is off by the tolerance
            before, after = stored.best(point.label), now.best(point.label)
        else:
            before, after = stored.single[point.label], now.single[point.label]
        same = [left.shape for left in before] == [right.shape for right in after]
        for index, (left, right) in enumerate(zip(before, after, strict=False)):
            gap = comparing.difference(left, right) if same else float("inf")
            allowed = max(eager_tolerance * signals[index], DRIFT_ROUNDING * rounding[index])
            if gap > allowed:
                raise SourceDrifted(
                    f"output {index} at the {point.name} point is {gap:.3g} away from the golden output; "
                    f"rounding explains {allowed:.3g}",
                    where="source",
                    hint="The installed package computes something else than when this version was first "
                    "built. Publish a new version, or build on a worker with the pinned packages.",
                )


def _rounding(golden: Golden) -> list[float]:
    """Each output's largest error of eager against float64, over the points that have both; else 0."""
    outputs = next(iter(golden.single.values()))
    pairs = [(golden.single[label], double) for label, double in golden.double.items()]
    return [
        max((comparing.difference(one[i], two[i]) for one, two in pairs), default=0.0)
        for i in range(len(outputs))
    ]


def signals_of(golden: Golden) -> list[float]:
    """Each output's signal: how far it moves, root mean square, between the two draws at the smallest point."""
    first, second = golden.best("smallest.0"), golden.best("smallest.1")
    return [comparing.spread(left, right) for left, right in zip(first, second, strict=True)]


@dataclass(frozen=True, slots=True)
class Response:
    """How the reference responds to one group of perturbed constants, at the smallest point.

    Attributes:
        group: The group, with the scale that made the response visible.
        outputs: The reference's outputs under the perturbation.
        allowances: What the comparison lets pass, per output.
    """

    group: Group
    outputs: Outputs
    allowances: list[comparing.Allowance]

    @property
    def powerful(self) -> bool:
        """Whether at least one output responds visibly: a group may serve one head of several."""
        return any(item.powerful for item in self.allowances)


def responses(
    module: torch.nn.Module, golden: Golden, base: list[comparing.Allowance], used: Iterable[str]
) -> list[Response]:
    """Perturbs each group of constants in eager mode and records the response.

    Args:
        module: As built for the target (its dtype and device); unchanged on return.
        golden: The version's golden values.
        base: Allowances at the golden weights.
        used: Names of the constants that the program reads.
    """
    device = _device(module)
    dtype_of = next((t.dtype for t in module.parameters() if t.is_floating_point()), torch.float32)
    point = eager.converted(golden.inputs["smallest.0"], dtype_of)
    inputs = {k: v.to(device) for k, v in point.items()}
    plain = eager.run_flat(module, inputs)
    precise = eager.in_double(module) if golden.double else None
    return [
        _respond(_Subject(module, precise, inputs), plain, golden, base, group)
        for group in groups_of(module, used)
    ]


@dataclass(frozen=True, slots=True)
class _Subject:
    module: torch.nn.Module
    precise: torch.nn.Module | None
    inputs: Tensors

    def run(self, group: Group) -> tuple[Outputs, Outputs]:
        """Eager's and the most precise outputs under a perturbation, both restored afterwards."""
        moved = perturb({k: v.cpu() for k, v in named_tensors(self.module).items()}, group)
        with _replaced(self.module, moved):
            single = eager.run_flat(self.module, self.inputs)
        if self.precise is None:
            return single, single
        with _replaced(self.precise, moved):
            wide = eager.converted(self.inputs, torch.float64)
            return single, eager.run_flat(self.precise, wide)


def _respond(
    subject: _Subject, plain: Outputs, golden: Golden, base: list[comparing.Allowance], group: Group
) -> Response:
    """Halves the noise until eager is finite, raises it until the response stands out of rounding."""
    response, scale, shrinking = None, 1.0, False
    before = golden.best("smallest.0") if golden.double else plain
    while 1 / MAX_SCALE <= scale <= MAX_SCALE:
        tried = replace(group, scale=scale)
        single, best = subject.run(tried)
        finite = all(bool(torch.isfinite(t).all()) for t in (*single, *best) if t.is_floating_point())
        if not finite:
            scale, shrinking = scale / 2, True
            continue
        moves = [comparing.spread(a, b) for a, b in zip(best, before, strict=True)]
        errors = [comparing.difference(a, b) for a, b in zip(single, best, strict=True)]
        response = Response(tried, best, comparing.response_allowances(moves, errors, base))
        if response.powerful or shrinking:
            break
        scale *= GROWTH
    return response or Response(group, before, [replace(item, signal=0.0) for item in base])


@contextlib.contextmanager
def _replaced(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Any:  # noqa: ANN401  # a context
    own = named_tensors(module)
    saved = {name: copy.deepcopy(own[name]) for name in tensors}
    try:
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
        yield
    finally:
        for name, tensor in saved.items():
            own[name].copy_(tensor)


def _device(module: torch.nn.Module) -> torch.device:
    return next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def save_responses(
    found: list[Response], base: list[comparing.Allowance], golden: Golden, path: Path
) -> None:
    """Writes what the gate compares with: golden values and responses, in one file the gate's process reads."""
    tensors = {f"group/{n}/{i}": t for n, item in enumerate(found) for i, t in enumerate(item.outputs)}
    for label, outputs in golden.single.items():
        tensors |= {f"golden/{label}/{i}": t for i, t in enumerate(golden.double.get(label, outputs))}
    for label, inputs in golden.inputs.items():
        tensors |= {f"input/{label}/{name}": t for name, t in inputs.items()}
    document = {
        "base": [item.as_dict() for item in base],
        "points": [{"name": p.name, "sizes": dict(p.sizes), "draw": p.draw} for p in golden.points],
        "groups": [
            {"group": asdict(item.group), "allowances": [a.as_dict() for a in item.allowances]}
            for item in found
        ],
    }
    packed = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    safetensors.torch.save_file(packed, path, metadata={"reference": json.dumps(document)})
