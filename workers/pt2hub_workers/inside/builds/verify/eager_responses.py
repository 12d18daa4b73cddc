"""Eager responses to perturbed constants, which an artifact that follows its weights must reproduce.

The reference is float64 where rounding could matter. On a CPU it costs four to eight times as much as the model's own
dtype, because most convolutions have no fast float64 kernels; so the model's own dtype is the reference where its
rounding is far below the allowance. Code that ignores its weights is off by the whole response with either reference.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pt2hub.errors import Pt2hubError
from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.compile.weights import named_tensors
from pt2hub_workers.inside.builds.export import eager
from pt2hub_workers.inside.builds.export.inputs import Tensors
from pt2hub_workers.inside.builds.verify.perturbation import Group, group_constants, perturb
from pt2hub_workers.inside.builds.verify.run_order import EVERYTHING
from pt2hub_workers.inside.builds.verify.tolerances import Allowance, response_allowances

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_SCALE = 256.0
"""Largest multiple of the base noise; a layer with a response below rounding is moved further."""
GROWTH = 4.0
"""Factor between scales that are tried."""
MIN_MARGIN = 16.0
"""The model's own dtype is the reference if every allowance is at least this many times its error."""
STEADY_FACTOR = 4.0
"""Maximum factor by which that error may grow when all constants are perturbed, to be trusted for each group."""

Outputs = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Response:
    """The reference's response to one group of perturbed constants, at the example."""

    group: Group
    outputs: Outputs
    allowances: list[Allowance]

    @property
    def has_power(self) -> bool:
        """Whether at least one output responds visibly: a group may affect one head of several."""
        return any(item.has_power for item in self.allowances)


@dataclass(frozen=True, slots=True)
class Unperturbed:
    """The model's outputs at the example before any perturbation.

    Attributes:
        double: In float64, with the target's rounded weights, so that only the perturbation counts as the response.
    """

    own: Outputs
    double: Outputs | None = None


def compute_responses(
    module: torch.nn.Module,
    inputs: Tensors,
    base: list[Allowance],
    used: Iterable[str],
    *,
    before: Unperturbed | None = None,
    in_double: bool = True,
) -> list[Response]:
    """Perturb each group of constants in eager mode and record the response.

    Args:
        before: Outputs without perturbation; computed if not given.
        in_double: Whether the model computes the same in float64, so that float64 may be the reference.
    """
    groups = group_constants(module, used)
    if not groups:
        return []
    model = _ReferenceModel.prepare(module, inputs, base, before, in_double=in_double)
    # All constants at once come first: they show whether rounding is the same as without perturbation.
    *each, everything = groups
    last = _find_visible_response(model, everything)
    if not last.steady:
        model = replace(model, own_serves=False)
    return [*(_find_visible_response(model, group).response for group in each), last.response]


@dataclass(frozen=True, slots=True)
class _MeasuredResponse:
    """A response, and whether the model's own dtype rounds as it does without perturbation."""

    response: Response
    steady: bool


@dataclass(frozen=True, slots=True)
class _Run:
    """One run with perturbed constants."""

    own: Outputs
    best: Outputs
    allowances: list[Allowance]

    @property
    def is_finite(self) -> bool:
        """Whether all outputs are finite."""
        return _is_finite(self.own) and _is_finite(self.best)


@dataclass(frozen=True, slots=True)
class _ReferenceModel:
    """The model and its float64 copy.

    Attributes:
        precise: The float64 copy; None if the model does not run in float64.
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
    ) -> _ReferenceModel:
        """Make the float64 copy, if the model runs in float64, and the outputs before any perturbation."""
        known = before or Unperturbed(eager.run_flat(module, inputs))
        floats = all(tensor.is_floating_point() for tensor in known.own)  # integers flip, they do not round
        if in_double:
            with contextlib.suppress(
                Pt2hubError, RuntimeError, TypeError
            ):  # then there is no float64 reference
                precise = eager.to_double(module)
                double = known.double or _run_double(precise, inputs)
                return cls(module, precise, inputs, base, replace(known, double=double), own_serves=floats)
        return cls(module, None, inputs, base, replace(known, double=None), own_serves=floats)

    def run(self, group: Group) -> _Run:
        """Return the outputs with perturbed constants, and restore these afterwards."""
        own = named_tensors(self.module)
        moved = perturb({name: own[name].cpu() for name in group.members}, group)
        with _replace_tensors(self.module, moved):
            single = eager.run_flat(self.module, self.inputs)
        by_itself = _Run(single, single, self._allowances(single, self.before.own))
        if self.precise is None or self._can_use_own_dtype(group, by_itself):
            return by_itself
        with _replace_tensors(self.precise, moved):
            best = _run_double(self.precise, self.inputs)
        errors = [differences.max_difference(a, b) for a, b in zip(single, best, strict=True)]
        return _Run(single, best, self._allowances(best, self.before.double or [], errors))

    def is_steady(self, run: _Run) -> bool:
        """Return whether the own dtype's error in a run is about the same as without perturbation."""
        errors = [differences.max_difference(a, b) for a, b in zip(run.own, run.best, strict=True)]
        return all(
            error <= STEADY_FACTOR * item.eager_error for error, item in zip(errors, self.base, strict=True)
        )

    def _can_use_own_dtype(self, group: Group, run: _Run) -> bool:
        """Return whether rounding is far below the allowances of a comparison with the model's own dtype."""
        if not self.own_serves or group.name == EVERYTHING or not run.is_finite:
            return False
        pairs = zip(run.allowances, self.base, strict=True)
        return any(item.has_power for item in run.allowances) and all(
            item.allowed >= MIN_MARGIN * without.eager_error for item, without in pairs
        )

    def _allowances(
        self, outputs: Outputs, before: Outputs, errors: list[float] | None = None
    ) -> list[Allowance]:
        moves = [differences.rms_difference(a, b) for a, b in zip(outputs, before, strict=True)]
        return response_allowances(moves, errors or [item.eager_error for item in self.base], self.base)


def _run_double(module: torch.nn.Module, inputs: Tensors) -> Outputs:
    return eager.run_flat(module, eager.convert_inputs(inputs, torch.float64))


def _find_visible_response(model: _ReferenceModel, group: Group) -> _MeasuredResponse:
    """Halve the noise until eager is finite, or raise it until the response exceeds rounding."""
    answer, scale, shrinking = None, 1.0, False
    while 1 / MAX_SCALE <= scale <= MAX_SCALE:
        tried = replace(group, scale=scale)
        run = model.run(tried)
        if not run.is_finite:
            scale, shrinking = scale / 2, True
            continue
        answer = _MeasuredResponse(Response(tried, run.best, run.allowances), model.is_steady(run))
        if answer.response.has_power or shrinking:
            break
        scale *= GROWTH
    if answer is None:
        silent = [replace(item, signal=0.0) for item in model.base]
        return _MeasuredResponse(
            Response(group, model.before.double or model.before.own, silent), steady=False
        )
    return answer


def _is_finite(outputs: Outputs) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in outputs if t.is_floating_point())


@contextlib.contextmanager
def _replace_tensors(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    own = named_tensors(module)
    saved = {name: own[name].clone() for name in tensors}
    try:
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
        yield
    finally:
        for name, tensor in saved.items():
            own[name].copy_(tensor)
