"""Groups equal segments: each group is compiled once, as a program of its own."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
import torch

from pt2hub.domain.digests import digest_json
from pt2hub_workers.inside.builds.export.mutations import find_mutated_placeholders
from pt2hub_workers.inside.builds.key.program_graphs import ProgramGraph
from pt2hub_workers.inside.builds.regions.errors import RegionsImpossible
from pt2hub_workers.inside.builds.regions.segments import boundary_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.export import ExportedProgram

    from pt2hub.domain.digests import Digest
    from pt2hub_workers.inside.builds.regions.segments import Segment


@dataclass(slots=True)
class Unit:
    """Equal segments.

    Attributes:
        segments: In the order in which they run; the first one's constants stand in for the others'.
    """

    segments: list[Segment]

    @property
    def first(self) -> Segment:
        return self.segments[0]


def group_segments(program: ExportedProgram, segments: Sequence[Segment]) -> list[Unit]:
    """Group segments that compute the same with other weights."""
    units: dict[Digest, Unit] = {}
    for segment in segments:
        units.setdefault(describe_segment(program, segment), Unit([])).segments.append(segment)
    return list(units.values())


def describe_segment(program: ExportedProgram, segment: Segment) -> Digest:
    """Return the digest of all of a segment but the values of its weights; segments without one equal no others."""
    graph = _SegmentGraph(program, segment)
    found = graph.describe_module()
    return digest_json([found, uuid.uuid4().hex if graph.unnamed else None])


class _SegmentGraph(ProgramGraph):
    """Description of a segment."""

    def __init__(self, program: ExportedProgram, segment: Segment) -> None:
        super().__init__(program)
        self._segment = segment
        self._literals = program.constants.keys() - program.state_dict.keys()

    def describe_module(self) -> Any:
        return self._describe_module(self._segment.module)

    def _describe_attribute(self, module: torch.nn.Module, path: str) -> Any:
        fqn = self._segment.constants.get(path)
        if fqn is None or fqn in self._literals:
            return super()._describe_attribute(module, path)
        value = module.get_parameter(path) if _is_parameter(module, path) else module.get_buffer(path)
        return [path, type(value).__name__, list(value.shape), list(value.stride()), str(value.dtype)]


def _is_parameter(module: torch.nn.Module, path: str) -> bool:
    owner, _, name = path.rpartition(".")
    return name in module.get_submodule(owner)._parameters  # noqa: SLF001


def export_unit(program: ExportedProgram, unit: Unit) -> ExportedProgram:
    """Export a unit's first segment as a program of its own."""
    segment = unit.first
    values = [boundary_value(node) for node in segment.inputs]
    dims = _Dims(program)
    shapes = tuple(dims.of(value) for value in values)
    args = tuple(_example(value) for value in values)
    try:
        found = torch.export.export(segment.module, args, dynamic_shapes=shapes if dims.used else None, strict=False)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise RegionsImpossible(f"torch.export refuses it: {type(error).__name__}: {text}") from error
    written = find_mutated_placeholders(found)
    if written & set(found.graph_signature.user_inputs):
        raise RegionsImpossible("it writes to a tensor of another part of the model")
    return found


def _example(value: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(
        _hints(value.shape), _hints(value.stride()), dtype=value.dtype, device=value.device
    )
    return made.zero_()


def _hints(sizes: Sequence[int | torch.SymInt]) -> list[int]:
    return [int(size.node.hint) if isinstance(size, torch.SymInt) else size for size in sizes]


class _Dims:
    """Dimensions of torch.export for the sizes of a program."""

    def __init__(self, program: ExportedProgram) -> None:
        self._ranges = program.range_constraints
        self._roots: dict[sympy.Symbol, Any] = {}

    @property
    def used(self) -> bool:
        return bool(self._roots)

    def of(self, value: torch.Tensor) -> dict[int, Any]:
        """Return the dynamic dimensions of a tensor."""
        return {
            place: self._dim(size.node.expr)
            for place, size in enumerate(value.shape)
            if isinstance(size, torch.SymInt) and size.node.expr.free_symbols
        }

    def _dim(self, expression: sympy.Expr) -> Any:
        symbols = list(expression.free_symbols)
        if len(symbols) != 1 or not sympy.Poly(expression, *symbols).is_linear:
            raise RegionsImpossible(f"a size between its parts is {expression}")
        root = self._root(symbols[0])
        factor = int(expression.coeff(symbols[0], 1))
        rest = int(expression - factor * symbols[0])
        scaled = root if factor == 1 else factor * root
        return scaled + rest if rest else scaled

    def _root(self, symbol: sympy.Symbol) -> Any:
        if symbol not in self._roots:
            bounds = self._ranges.get(symbol)
            most = None if bounds is None or not bounds.upper.is_number or bounds.upper > 2**62 else int(bounds.upper)
            least = None if bounds is None else int(bounds.lower)
            self._roots[symbol] = torch.export.Dim(f"d{len(self._roots)}", min=least, max=most)
        return self._roots[symbol]
