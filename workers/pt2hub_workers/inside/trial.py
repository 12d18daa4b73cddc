"""What the gate runs and the judge expects, in one order; without torch, for the judge reads it too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLE, OTHER, SMALLEST = "example.0", "example.1", "smallest.0"
"""Labels of points: the two with the example's sizes and different values, and that with the smallest sizes."""
OTHER_THREADS = (1, 8)
"""OpenMP thread counts tried besides the default: code built for two threads crashed on eight (facts, section 2)."""
EVERYTHING = "everything"
"""The group of all constants at once: the run with randomised weights."""
TRIAL, EXPECTED, FOUND = "trial", "expected", "found"
"""Keys under which the metadata of the three files holds their documents."""
_IN_NUMPY = frozenset(
    {
        *("float64", "float32", "float16", "int64", "int32", "int16", "int8"),
        *("uint64", "uint32", "uint16", "uint8", "bool", "complex64"),
    }
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the artifact.

    Attributes:
        point: Label of the inputs.
        threads: OpenMP threads.
        group: Name of the perturbed constants, None for the artifact as it is.
        number: The group's place among the groups.
        call: Which call of the artifact is looked at; before a second one comes a first one on the same inputs.
    """

    point: str
    threads: int
    group: str | None = None
    number: int = 0
    call: int = 1


def plan(points: Iterable[str], groups: Iterable[str], *, threads: int, device: str) -> list[Run]:
    """Every run of the gate: all points, the example's second call, two points on other threads, the perturbations.

    Args:
        points: Their labels.
        groups: Names of the groups of perturbed constants.
        threads: The default number of threads.
        device: `cpu` or `cuda`, where the number of threads plays no part.
    """
    labels = list(points)
    others = [n for n in OTHER_THREADS if n != threads] if device == "cpu" else []
    some = [label for label in labels if label in (EXAMPLE, SMALLEST)]
    runs = [Run(label, threads) for label in labels]
    runs.append(Run(EXAMPLE, threads, call=2))
    runs += [Run(label, n) for n in others for label in some]
    return runs + [Run(EXAMPLE, threads, name, number) for number, name in enumerate(groups)]


def stored_as(dtype: str) -> str:
    """The dtype in which a tensor stands in a file: its own, or float32 where numpy lacks it, which is exact.

    Args:
        dtype: As torch names it.
    """
    return dtype if dtype in _IN_NUMPY else "float32"


def is_floating(dtype: str) -> bool:
    """Whether values of a dtype are compared by their distance; all others must be equal."""
    return dtype.startswith(("float", "bfloat"))
