"""The order of runs of an artifact, for its process and for the verifier; without torch, which the verifier never loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLE, OTHER, SMALLEST = "example.0", "example.1", "smallest.0"
"""Labels of points: two with the example's sizes and different values, and one with the smallest sizes."""
OTHER_THREADS = (1, 8)
"""OpenMP thread counts tried in addition to the default: code built for two threads crashed on eight."""
EVERYTHING = "everything"
"""The group of all constants at once: the run with randomised weights."""
INPUTS_KEY, EXPECTED_KEY, OUTPUTS_KEY = "inputs", "expected", "found"
"""Keys of the documents in the metadata of the three files."""
_IN_NUMPY = frozenset(
    {
        *("float64", "float32", "float16", "int64", "int32", "int16", "int8"),
        *("uint64", "uint32", "uint16", "uint8", "bool", "complex64"),
    }
)


@dataclass(frozen=True, slots=True)
class VerificationRun:
    """One run of the artifact.

    Attributes:
        group: Name of the perturbed constants, None for the artifact as it is.
        call: Number of the call that is compared; a second call follows a first one on the same inputs.
    """

    point: str
    threads: int
    group: str | None = None
    number: int = 0
    call: int = 1


def plan_runs(
    points: Iterable[str], groups: Iterable[str], *, threads: int, device: str
) -> list[VerificationRun]:
    """Return all runs: every point, the example's second call, two points on other thread counts, the perturbations.

    Args:
        device: `cpu` or `cuda`; on `cuda` thread counts are irrelevant.
    """
    labels = list(points)
    others = [n for n in OTHER_THREADS if n != threads] if device == "cpu" else []
    some = [label for label in labels if label in (EXAMPLE, SMALLEST)]
    runs = [VerificationRun(label, threads) for label in labels]
    runs.append(VerificationRun(EXAMPLE, threads, call=2))
    runs += [VerificationRun(label, n) for n in others for label in some]
    return runs + [VerificationRun(EXAMPLE, threads, name, number) for number, name in enumerate(groups)]


def stored_dtype(dtype: str) -> str:
    """Return the dtype of a tensor in a file: its own, or float32 if numpy lacks it, which is exact."""
    return dtype if dtype in _IN_NUMPY else "float32"


def is_floating(dtype: str) -> bool:
    """Return whether values of a dtype are compared by difference; all others must be equal."""
    return dtype.startswith(("float", "bfloat"))
