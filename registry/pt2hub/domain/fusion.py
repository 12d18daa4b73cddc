"""Fusion documents: a model's exported graph, and the operations that each generated kernel holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import decode
from pt2hub.errors import BadResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FUSION_SCHEMA = 1
MAX_FUSION_BYTES = 4 << 20
MAX_NODES = 5000
"""A decoder of 64 layers has about 3000."""
MAX_KERNELS = 2000
MAX_TEXT_CHARS = 300
_MAX_COUNT = 10**9


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of the exported graph.

    Attributes:
        opcode: FX's word: `placeholder`, `call_function`, `output`, ...
        name: Name in the graph, which kernels refer to.
        target: What it calls or reads (`aten.relu.default`).
        shape: Sizes of its output, symbolic ones as text; None for several outputs or none that is a tensor.
        dtype: dtype of its output; None as for `shape`.
        source: The model's line (`model.py:12`); may be empty.
    """

    opcode: str
    name: str
    target: str
    shape: tuple[str, ...] | None = None
    dtype: str | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel, or a library's function, that the generated code calls.

    Attributes:
        name: Name in the generated code.
        calls: Number of places in the generated code that call it.
        operations: Names of the nodes of the exported graph that it computes, in the graph's order; empty where the
            compiler replaced them by others.
        lowered: The compiler's names of what it computes, after decomposition.
        registers: Registers per thread; None unless Triton compiled it.
        shared_bytes: Shared memory per block in bytes; None as for `registers`.
        spills: Registers that spilled to memory; None as for `registers`.
    """

    name: str
    calls: int
    operations: tuple[str, ...] = ()
    lowered: tuple[str, ...] = ()
    registers: int | None = None
    shared_bytes: int | None = None
    spills: int | None = None


@dataclass(frozen=True, slots=True)
class Fusion:
    """The exported graph and the kernels of its code.

    Attributes:
        schema: `FUSION_SCHEMA`.
        graph: Nodes in order.
        kernels: Kernels in the order of their first call.
        left_out: Number of nodes and kernels beyond the limits.
    """

    schema: int
    graph: tuple[GraphNode, ...]
    kernels: tuple[FusedKernel, ...]
    left_out: int = 0


def read_fusion(value: Any) -> Fusion:
    """Read a fusion document from untrusted JSON values.

    Raises:
        BadResponse: The document is malformed, of another schema, or beyond the limits.
    """
    try:
        found = decode(Fusion, value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResponse(f"Invalid fusion document: {error}") from error
    if found.schema != FUSION_SCHEMA:
        raise BadResponse(f"Unknown schema {found.schema} of the fusion document")
    fits = len(found.graph) <= MAX_NODES and len(found.kernels) <= MAX_KERNELS
    if not fits or not all(len(text) <= MAX_TEXT_CHARS for text in _texts(found)):
        raise BadResponse("Invalid fusion document: too many nodes or kernels, or a text that is too long")
    if not all(0 <= number <= _MAX_COUNT for number in _counts(found)):
        raise BadResponse("Invalid fusion document: a number is out of range")
    return found


def sources_of(graph: tuple[GraphNode, ...]) -> Mapping[str, str]:
    """Return the model's lines of the graph's nodes, by their names."""
    return {node.name: node.source for node in graph}


def group_by_line(kernel: FusedKernel, sources: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return a kernel's operations by the model's line; without operations, the compiler's names under an empty line."""
    grouped: dict[str, list[str]] = {}
    for name in kernel.operations:
        grouped.setdefault(sources.get(name, ""), []).append(name)
    if not grouped and kernel.lowered:
        grouped[""] = list(kernel.lowered)
    return tuple((line, tuple(names)) for line, names in grouped.items())


def _texts(found: Fusion) -> Iterator[str]:
    for node in found.graph:
        yield from (node.opcode, node.name, node.target, node.dtype or "", node.source, *(node.shape or ()))
    for kernel in found.kernels:
        yield from (kernel.name, *kernel.operations, *kernel.lowered)


def _counts(found: Fusion) -> Iterator[int]:
    yield found.left_out
    for kernel in found.kernels:
        yield kernel.calls
        yield from (n for n in (kernel.registers, kernel.shared_bytes, kernel.spills) if n is not None)
