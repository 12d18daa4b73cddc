"""Parts: equal segments of a program, which are compiled once as a program of their own."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
import torch

from pt2hub.domain.artifacts import Dim, Signature, TensorInput
from pt2hub.domain.digests import digest_json
from pt2hub_workers.inside.builds.export.export import ExportResult
from pt2hub_workers.inside.builds.export.mutations import find_mutated_placeholders
from pt2hub_workers.inside.builds.key.program_graphs import ProgramGraph
from pt2hub_workers.inside.builds.regions.errors import RegionsImpossible
from pt2hub_workers.inside.builds.regions.segments import Segment, boundary_value

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch.export import ExportedProgram

    from pt2hub.domain.digests import Digest


@dataclass(slots=True)
class Part:
    """Equal segments.

    Attributes:
        segments: In the order in which they run; the first one stands for all.
        description: Everything that makes them equal, as JSON values.
    """

    segments: list[Segment]
    description: Any

    @property
    def first(self) -> Segment:
        """The segment that is compiled."""
        return self.segments[0]

    @property
    def modules(self) -> tuple[str, ...]:
        """Paths of the modules that the segments are; empty between regions."""
        return tuple(segment.block.path for segment in self.segments if segment.block)

    def __str__(self) -> str:
        if not self.modules:
            return f"a part between regions ({len(self.first.nodes)} operations)"
        if len(self.modules) == 1:
            return self.modules[0]
        return f"{self.modules[0]} ... {self.modules[-1]} ({len(self.modules)} calls)"


def group_segments(
    program: ExportedProgram, segments: Sequence[Segment], separate: Collection[str]
) -> list[Part]:
    """Group segments that compute the same with other weights.

    Args:
        separate: Names of the weights, whose values may differ; other constants are compared by value.
    """
    parts: dict[Digest, Part] = {}
    for segment in segments:
        found = describe_segment(program, segment, separate)
        parts.setdefault(digest_json(found), Part([], found)).segments.append(segment)
    return list(parts.values())


def describe_segment(program: ExportedProgram, segment: Segment, separate: Collection[str]) -> Any:
    """Describe all of a segment but the values of its weights; without a complete description it equals no others."""
    graph = _SegmentGraph(program, segment, separate)
    found = graph.describe_module()
    return [found, uuid.uuid4().hex] if graph.unnamed else [found]


class _SegmentGraph(ProgramGraph):
    """Description of a segment."""

    def __init__(self, program: ExportedProgram, segment: Segment, separate: Collection[str]) -> None:
        super().__init__(program)
        self._segment = segment
        self._separate = separate

    def describe_module(self) -> Any:
        """Return the nodes of the segment."""
        return self._describe_module(self._segment.module)

    def _describe_attribute(self, module: torch.nn.Module, path: str) -> Any:
        if self._segment.constants.get(path) not in self._separate:
            return super()._describe_attribute(module, path)
        value: Any = module
        for name in path.split("."):
            value = getattr(value, name)
        return [path, type(value).__name__, list(value.shape), list(value.stride()), str(value.dtype)]


def export_part(program: ExportedProgram, part: Part, device: str) -> ExportResult:
    """Export a part's first segment as a program of its own.

    Raises:
        RegionsImpossible: torch.export refuses it, or it writes to tensors of other parts.
    """
    segment = part.first
    values = [boundary_value(node) for node in segment.inputs]
    dims = _Dims(program)
    shapes = tuple(dims.of(value) for value in values)
    args = tuple(_example(value) for value in values)
    try:
        found = torch.export.export(
            segment.module, args, dynamic_shapes=shapes if dims.ranges else None, strict=False
        )
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise RegionsImpossible(f"{part} cannot be exported: {type(error).__name__}: {text}") from error
    written = find_mutated_placeholders(found)
    if written & set(found.graph_signature.user_inputs):
        raise RegionsImpossible(f"{part} writes to a tensor of another part")
    names = found.graph_signature.inputs_to_buffers
    mutated = frozenset(name for place, name in names.items() if place in written)
    return ExportResult(found, _signature(values, dims, device), mutated)


def _signature(values: Sequence[torch.Tensor], dims: _Dims, device: str) -> Signature:
    """Return what the program key knows of a part's call."""
    inputs = tuple(
        TensorInput(f"x{number}", dims.sizes(value), str(value.dtype).removeprefix("torch."))
        for number, value in enumerate(values)
    )
    names = tuple(item.name for item in inputs)
    return Signature(names, inputs, dims.ranges, device, in_spec="", out_spec="")


def _example(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor of zeros: a program that was traced once depends on no values."""
    sizes, strides = _hints(value.shape), _hints(value.stride())
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device).zero_()


def _hints(sizes: Sequence[Any]) -> list[int]:
    return [int(size.node.hint) if isinstance(size, torch.SymInt) else size for size in sizes]


class _Dims:
    """Dimensions of torch.export for the sizes of a part's inputs.

    They are named in the order in which they appear, so that equal parts of different models have equal programs.

    Attributes:
        ranges: Ranges of the dimensions so far, by name.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.ranges: dict[str, Dim] = {}
        self._constraints = program.range_constraints
        self._roots: dict[sympy.Symbol, Any] = {}

    def of(self, value: torch.Tensor) -> dict[int, Any]:
        """Return the dynamic dimensions of a tensor."""
        sizes: Sequence[Any] = value.shape
        return {
            place: self._dim(size.node.expr)
            for place, size in enumerate(sizes)
            if isinstance(size, torch.SymInt) and size.node.expr.free_symbols
        }

    def sizes(self, value: torch.Tensor) -> tuple[int | str, ...]:
        """Return the sizes of a tensor that was given to `of`, with the names of the dimensions."""
        names = {symbol: root.__name__ for symbol, root in self._roots.items()}
        sizes: Sequence[Any] = value.shape
        return tuple(
            str(size.node.expr.subs(names)) if isinstance(size, torch.SymInt) else size for size in sizes
        )

    def _dim(self, expression: sympy.Expr) -> Any:
        symbols = list(expression.free_symbols)
        if len(symbols) != 1 or not expression.is_polynomial() or sympy.degree(expression, symbols[0]) != 1:
            raise RegionsImpossible(f"the size {expression} of a tensor between its parts is not linear")
        root = self._root(symbols[0])
        factor = int(expression.coeff(symbols[0], 1))
        rest = int(expression - factor * symbols[0])
        scaled = root if factor == 1 else factor * root
        return scaled + rest if rest else scaled

    def _root(self, symbol: sympy.Symbol) -> Any:
        if symbol not in self._roots:
            bounds = self._constraints.get(symbol)
            if bounds is None:
                raise RegionsImpossible(f"the range of the size {symbol} is unknown")
            name = f"d{len(self._roots)}"
            least, most = int(bounds.lower), _upper(bounds.upper)
            self._roots[symbol] = torch.export.Dim(name, min=least, max=most)
            self.ranges[name] = Dim(least, most or 2**62)
        return self._roots[symbol]


def _upper(bound: sympy.Expr) -> int | None:
    return int(bound) if bound.is_Integer and bound < 2**62 else None  # beyond any tensor's size
