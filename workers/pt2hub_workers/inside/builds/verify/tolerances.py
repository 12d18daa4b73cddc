"""Allowances of comparisons of outputs; without torch, which the verifier never loads."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_POWER = 4.0
"""A comparison has power if the signal is at least this many times the allowance: a wrong output is off by about the
signal itself."""
EAGER_FACTOR = 2.0
"""An error within twice eager's own against float64 passes."""
RESPONSE_SHARE = 8.0
"""With perturbed constants, an artifact must match the expected response to within one part in this many."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The largest error that a comparison of one output accepts.

    Attributes:
        signal: Root mean square of the difference between the reference's outputs for two inputs (or, for
            perturbed constants, of the response to the perturbation), in the output's own unit.
        eager_error: Largest difference of eager from the reference, in the same unit, or the rounding limit.
    """

    output: int
    signal: float
    eager_error: float
    allowed: float

    @property
    def has_power(self) -> bool:
        """Whether a wrong output would be caught."""
        return self.signal > 0 and self.signal >= MIN_POWER * self.allowed

    def as_dict(self) -> dict[str, Any]:
        """JSON values for the report."""
        return asdict(self)


def base_allowances(
    signals: Sequence[float], eager_errors: Sequence[float], tolerance: float, *, rounding: Sequence[float]
) -> list[Allowance]:
    """Return the allowances at the golden weights: the tolerance of the signal, or twice eager's own error.

    Args:
        tolerance: Relative to the signal.
        rounding: See `differences.rounding_limit`; it never deprives a comparison of its power.
    """
    errors = [
        max(error, min(unit, signal / (MIN_POWER * EAGER_FACTOR)))
        for signal, error, unit in zip(signals, eager_errors, rounding, strict=True)
    ]
    return [
        Allowance(index, signal, error, max(tolerance * signal, EAGER_FACTOR * error))
        for index, (signal, error) in enumerate(zip(signals, errors, strict=True))
    ]


def response_allowances(
    responses: Sequence[float], eager_errors: Sequence[float], base: Sequence[Allowance]
) -> list[Allowance]:
    """Return the allowances under perturbed constants: at most a fraction of the expected response.

    An output that does not respond visibly (another head's) proves nothing about these constants: its allowance is that
    at the golden weights. With rounding alone, one accidentally precise eager value would refuse a correct artifact.
    """
    found = []
    for response, error, item in zip(responses, eager_errors, base, strict=True):
        rounding = EAGER_FACTOR * max(error, item.eager_error)
        strict = Allowance(
            item.output, response, error, max(min(item.allowed, response / RESPONSE_SHARE), rounding)
        )
        found.append(strict if strict.has_power else replace(strict, allowed=max(item.allowed, rounding)))
    return found
