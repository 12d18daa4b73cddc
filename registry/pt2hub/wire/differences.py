"""Differences between two artifacts in API responses."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.differences.fields import FieldDifference
from pt2hub.domain.differences.graphs import GraphDifferences
from pt2hub.domain.differences.kernels import KernelDifferences
from pt2hub.domain.differences.numerics import NumericsDifferences
from pt2hub.domain.differences.program_keys import KeyDifferences
from pt2hub.domain.differences.sizes import SizeDifference
from pt2hub.renderable import Renderable
from pt2hub.wire.performance import ComparisonView


@dataclass(frozen=True, slots=True)
class SpecDifferences:
    """Differences between two specs.

    Attributes:
        fields: Fields that differ; `request` is the requested target with its overrides, `packages` are the installed ones.
        left_out: Number of further fields.
        missing: Why the specs cannot be compared; empty if they can.
    """

    fields: tuple[FieldDifference, ...] = ()
    left_out: int = 0
    missing: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class DiffView(Renderable):
    """Differences between two artifacts, section by section.

    Attributes:
        comparison: Speed, autotune choices and code, as `GET /api/v1/compare` returns them.
        spec: Differences between the specs.
        key: Differences between the program keys: why code was or was not reused.
        graph: Differences between the exported graphs.
        kernels: Differences between the kernels of the code.
        sizes: Sizes of code, weights and package.
        numerics: Errors against the references, and tolerances.
    """

    comparison: ComparisonView
    spec: SpecDifferences
    key: KeyDifferences
    graph: GraphDifferences
    kernels: KernelDifferences
    sizes: tuple[SizeDifference, ...]
    numerics: NumericsDifferences
