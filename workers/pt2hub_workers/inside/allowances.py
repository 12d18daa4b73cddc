"""What comparisons of outputs let pass; without torch, for the judge reads it too."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

POWER = 4.0
"""A comparison has power when the signal is at least this many times what the comparison lets pass: a wrong
output is off by about the signal itself."""
EAGER_FACTOR = 2.0
"""An error within twice eager's own against float64 passes (design: reference of the gate)."""
RESPONSE_SHARE = 8.0
"""Under perturbed constants an artifact must follow to within this part of the response it should show."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a comparison of one output lets pass.

    Attributes:
        output: Index of the output tensor.
        signal: Root mean square of the difference between the reference's outputs for two inputs (or, for
            perturbed constants, of the response to the perturbation), in the output's own unit.
        eager_error: Largest difference of eager from the reference, likewise, or what rounding alone may give.
        allowed: Largest difference that passes.
    """

    output: int
    signal: float
    eager_error: float
    allowed: float

    @property
    def powerful(self) -> bool:
        """Whether a wrong output would be caught."""
        return self.signal > 0 and self.signal >= POWER * self.allowed

    def as_dict(self) -> dict[str, Any]:
        """JSON values for the report."""
        return asdict(self)


def base_allowances(
    signals: Sequence[float], eager_errors: Sequence[float], tolerance: float, *, rounding: Sequence[float]
) -> list[Allowance]:
    """What passes at the golden weights: within the tolerance of the signal or twice eager's own error.

    Args:
        signals: Of each output.
        eager_errors: Likewise. Eager may be exact by luck: it counts as no better than rounding lets anybody be.
        tolerance: Relative to signal.
        rounding: What rounding alone may give, see `comparing.rounding`; it never costs a comparison its power.
    """
    errors = [
        max(error, min(unit, signal / (POWER * EAGER_FACTOR)))
        for signal, error, unit in zip(signals, eager_errors, rounding, strict=True)
    ]
    return [
        Allowance(index, signal, error, max(tolerance * signal, EAGER_FACTOR * error))
        for index, (signal, error) in enumerate(zip(signals, errors, strict=True))
    ]


def response_allowances(
    responses: Sequence[float], eager_errors: Sequence[float], base: Sequence[Allowance]
) -> list[Allowance]:
    """What passes under perturbed constants: at most a part of the response that must be followed.

    An output that does not respond visibly (another head's) is no witness for these constants: it passes as at
    the golden weights. Held to rounding alone, a single lucky number of eager's would refuse a right artifact.
    """
    found = []
    for response, error, item in zip(responses, eager_errors, base, strict=True):
        rounding = EAGER_FACTOR * max(error, item.eager_error)
        strict = Allowance(
            item.output, response, error, max(min(item.allowed, response / RESPONSE_SHARE), rounding)
        )
        found.append(strict if strict.powerful else replace(strict, allowed=max(item.allowed, rounding)))
    return found
