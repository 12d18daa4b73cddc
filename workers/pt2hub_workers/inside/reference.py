"""What the gate compares with: golden outputs, and eager's response to other weights."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import safetensors.torch
import torch

from pt2hub.errors import Pt2hubError
from pt2hub_workers.inside import comparing, eager
from pt2hub_workers.inside.allowances import Allowance, base_allowances, response_allowances
from pt2hub_workers.inside.inputs import Tensors
from pt2hub_workers.inside.perturbing import Group, groups_of, perturb
from pt2hub_workers.inside.tensors import dtype_name, storable
from pt2hub_workers.inside.trial import EXPECTED, TRIAL
from pt2hub_workers.inside.weights import named_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pt2hub_workers.inside.golden import Golden, PerPoint

MAX_SCALE = 256.0
"""Largest multiple of the base noise: a layer whose response is lost in rounding is moved further."""
GROWTH = 4.0
"""Factor between tries."""

Outputs = list[torch.Tensor]
Allowances = dict[str, list[Allowance]]
"""What passes at the golden weights, per output, by point label."""


@dataclass(frozen=True, slots=True)
class Response:
    """How the reference responds to one group of perturbed constants, at the example.

    Attributes:
        group: The group, with the scale that made the response visible.
        outputs: The reference's outputs under the perturbation.
        allowances: What the comparison lets pass, per output.
    """

    group: Group
    outputs: Outputs
    allowances: list[Allowance]

    @property
    def powerful(self) -> bool:
        """Whether at least one output responds visibly: a group may serve one head of several."""
        return any(item.powerful for item in self.allowances)


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


def responses(
    module: torch.nn.Module,
    inputs: Tensors,
    base: list[Allowance],
    used: Iterable[str],
    *,
    in_double: bool = True,
) -> list[Response]:
    """Perturbs each group of constants in eager mode and records the response.

    Args:
        module: As built for the target (its dtype and device); unchanged on return.
        inputs: Those of the example, as the target takes them.
        base: Allowances at the golden weights there.
        used: Names of the constants that the program reads.
        in_double: Whether the model computes the same in float64, so that it may serve as the reference.
    """
    subject = _Subject.prepare(module, inputs, in_double=in_double)
    return [_respond(subject, base, group) for group in groups_of(module, used)]


@dataclass(frozen=True, slots=True)
class _Subject:
    module: torch.nn.Module
    precise: torch.nn.Module | None
    inputs: Tensors
    before: Outputs

    @classmethod
    def prepare(cls, module: torch.nn.Module, inputs: Tensors, *, in_double: bool) -> _Subject:
        """The module and its float64 copy, where float64 runs, with the outputs before any perturbation.

        The copy has the target's rounded weights, so that only the perturbation counts as response.
        """
        if not in_double:
            return cls(module, None, inputs, eager.run_flat(module, inputs))
        with contextlib.suppress(Pt2hubError, RuntimeError, TypeError):  # then it has no float64 reference
            precise = eager.in_double(module)
            return cls(module, precise, inputs, _run_double(precise, inputs))
        return cls(module, None, inputs, eager.run_flat(module, inputs))

    def run(self, group: Group) -> tuple[Outputs, Outputs]:
        """Eager's and the most precise outputs under a perturbation, both restored afterwards."""
        moved = perturb({k: v.cpu() for k, v in named_tensors(self.module).items()}, group)
        with _replaced(self.module, moved):
            single = eager.run_flat(self.module, self.inputs)
        if self.precise is None:
            return single, single
        with _replaced(self.precise, moved):
            return single, _run_double(self.precise, self.inputs)


def _run_double(module: torch.nn.Module, inputs: Tensors) -> Outputs:
    return eager.run_flat(module, eager.converted(inputs, torch.float64))


def _respond(subject: _Subject, base: list[Allowance], group: Group) -> Response:
    """Halves the noise until eager is finite, raises it until the response stands out of rounding."""
    response, scale, shrinking = None, 1.0, False
    while 1 / MAX_SCALE <= scale <= MAX_SCALE:
        tried = replace(group, scale=scale)
        single, best = subject.run(tried)
        if not _finite(single) or not _finite(best):
            scale, shrinking = scale / 2, True
            continue
        moves = [comparing.spread(a, b) for a, b in zip(best, subject.before, strict=True)]
        errors = [comparing.difference(a, b) for a, b in zip(single, best, strict=True)]
        response = Response(tried, best, response_allowances(moves, errors, base))
        if response.powerful or shrinking:
            break
        scale *= GROWTH
    return response or Response(group, subject.before, [replace(item, signal=0.0) for item in base])


def _finite(outputs: Outputs) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in outputs if t.is_floating_point())


@contextlib.contextmanager
def _replaced(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    own = named_tensors(module)
    saved = {name: own[name].clone() for name in tensors}
    try:
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
        yield
    finally:
        for name, tensor in saved.items():
            own[name].copy_(tensor)


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
