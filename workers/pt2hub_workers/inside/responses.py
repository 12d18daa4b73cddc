"""How the model answers to perturbed constants, in eager mode: what an artifact that follows its weights must show.

float64 is the reference where rounding could matter. On a CPU it costs four to eight times as much as the model's own
dtype, for most convolutions have no fast float64 kernels; so the model's own dtype serves where its rounding is far
below what the comparison lets pass. A code that ignores its weights is off by the whole response, whichever of the two
is the reference.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pt2hub.errors import Pt2hubError
from pt2hub_workers.inside import comparing, eager
from pt2hub_workers.inside.allowances import Allowance, response_allowances
from pt2hub_workers.inside.inputs import Tensors
from pt2hub_workers.inside.perturbing import Group, groups_of, perturb
from pt2hub_workers.inside.trial import EVERYTHING
from pt2hub_workers.inside.weights import named_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_SCALE = 256.0
"""Largest multiple of the base noise: a layer whose response is lost in rounding is moved further."""
GROWTH = 4.0
"""Factor between tries."""
MARGIN = 16.0
"""The model's own dtype is the reference where every comparison lets at least this many times its error pass."""
STEADY = 4.0
"""How many times that error may be larger when all constants are perturbed, for it to be believed of each group."""

Outputs = list[torch.Tensor]


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


@dataclass(frozen=True, slots=True)
class Unperturbed:
    """The model's outputs at the example before any perturbation, as far as they are known.

    Attributes:
        own: In the target's dtype.
        double: In float64, with the target's rounded weights, so that only the perturbation counts as response.
    """

    own: Outputs
    double: Outputs | None = None


def responses(
    module: torch.nn.Module,
    inputs: Tensors,
    base: list[Allowance],
    used: Iterable[str],
    *,
    before: Unperturbed | None = None,
    in_double: bool = True,
) -> list[Response]:
    """Perturbs each group of constants in eager mode and records the response.

    Args:
        module: As built for the target (its dtype and device); unchanged on return.
        inputs: Those of the example, as the target takes them.
        base: Allowances at the golden weights there.
        used: Names of the constants that the program reads.
        before: Outputs without perturbation; computed where they are not given.
        in_double: Whether the model computes the same in float64, so that it may serve as the reference.
    """
    groups = groups_of(module, used)
    if not groups:
        return []
    subject = _Subject.prepare(module, inputs, base, before, in_double=in_double)
    # All constants at once come first: they show whether rounding is what it is without perturbation.
    *each, everything = groups
    last = _respond(subject, everything)
    if not last.steady:
        subject = replace(subject, own_serves=False)
    return [*(_respond(subject, group).response for group in each), last.response]


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response, and whether the model's own dtype rounded in it as it does without perturbation."""

    response: Response
    steady: bool


@dataclass(frozen=True, slots=True)
class _Run:
    """One run under a perturbation.

    Attributes:
        own: Outputs in the model's own dtype.
        best: The most precise ones that were computed.
        allowances: What passes against the latter.
    """

    own: Outputs
    best: Outputs
    allowances: list[Allowance]

    @property
    def finite(self) -> bool:
        """Whether all of it can be compared."""
        return _finite(self.own) and _finite(self.best)


@dataclass(frozen=True, slots=True)
class _Subject:
    """The model.

    Attributes:
        module: In the target's dtype.
        precise: Its float64 copy, None where float64 does not run.
        inputs: Of the example.
        base: What passes there without perturbation.
        before: The outputs there without perturbation.
        own_serves: Whether the model's own dtype may be the reference.
    """

    module: torch.nn.Module
    precise: torch.nn.Module | None
    inputs: Tensors
    base: list[Allowance]
    before: Unperturbed
    own_serves: bool

    @classmethod
    def prepare(
        cls,
        module: torch.nn.Module,
        inputs: Tensors,
        base: list[Allowance],
        before: Unperturbed | None,
        *,
        in_double: bool,
    ) -> _Subject:
        """The module and its float64 copy, where float64 runs, with the outputs before any perturbation."""
        known = before or Unperturbed(eager.run_flat(module, inputs))
        floats = all(
            tensor.is_floating_point() for tensor in known.own
        )  # whole numbers flip, they do not round
        if in_double:
            with contextlib.suppress(
                Pt2hubError, RuntimeError, TypeError
            ):  # then it has no float64 reference
                precise = eager.in_double(module)
                double = known.double or _run_double(precise, inputs)
                return cls(module, precise, inputs, base, replace(known, double=double), own_serves=floats)
        return cls(module, None, inputs, base, replace(known, double=None), own_serves=floats)

    def run(self, group: Group) -> _Run:
        """The outputs under a perturbation, which is taken back afterwards."""
        own = named_tensors(self.module)
        moved = perturb({name: own[name].cpu() for name in group.members}, group)
        with _replaced(self.module, moved):
            single = eager.run_flat(self.module, self.inputs)
        by_itself = _Run(single, single, self._allowances(single, self.before.own))
        if self.precise is None or self._own_serves(group, by_itself):
            return by_itself
        with _replaced(self.precise, moved):
            best = _run_double(self.precise, self.inputs)
        errors = [comparing.difference(a, b) for a, b in zip(single, best, strict=True)]
        return _Run(single, best, self._allowances(best, self.before.double or [], errors))

    def is_steady(self, run: _Run) -> bool:
        """Whether the own dtype's error in a run is what it is without perturbation."""
        errors = [comparing.difference(a, b) for a, b in zip(run.own, run.best, strict=True)]
        return all(error <= STEADY * item.eager_error for error, item in zip(errors, self.base, strict=True))

    def _own_serves(self, group: Group, run: _Run) -> bool:
        """Whether rounding is far below what a comparison with the model's own dtype lets pass."""
        if not self.own_serves or group.name == EVERYTHING or not run.finite:
            return False
        pairs = zip(run.allowances, self.base, strict=True)
        return any(item.powerful for item in run.allowances) and all(
            item.allowed >= MARGIN * without.eager_error for item, without in pairs
        )

    def _allowances(
        self, outputs: Outputs, before: Outputs, errors: list[float] | None = None
    ) -> list[Allowance]:
        moves = [comparing.spread(a, b) for a, b in zip(outputs, before, strict=True)]
        return response_allowances(moves, errors or [item.eager_error for item in self.base], self.base)


def _run_double(module: torch.nn.Module, inputs: Tensors) -> Outputs:
    return eager.run_flat(module, eager.converted(inputs, torch.float64))


def _respond(subject: _Subject, group: Group) -> _Answer:
    """Halves the noise until eager is finite, raises it until the response stands out of rounding."""
    answer, scale, shrinking = None, 1.0, False
    while 1 / MAX_SCALE <= scale <= MAX_SCALE:
        tried = replace(group, scale=scale)
        run = subject.run(tried)
        if not run.finite:
            scale, shrinking = scale / 2, True
            continue
        answer = _Answer(Response(tried, run.best, run.allowances), subject.is_steady(run))
        if answer.response.powerful or shrinking:
            break
        scale *= GROWTH
    if answer is None:
        silent = [replace(item, signal=0.0) for item in subject.base]
        return _Answer(Response(group, subject.before.double or subject.before.own, silent), steady=False)
    return answer


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
