"""Cuts an exported program into segments: its regions, and what lies between them.

A segment is a part of the graph that runs as one. Shape arithmetic is repeated in each segment that needs it, so that only
tensors pass from one segment to the next.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from pt2hub_workers.inside.builds.export.mutations import find_mutated_placeholders
from pt2hub_workers.inside.builds.regions.errors import RegionsImpossible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch.export import ExportedProgram

_ASSERTIONS = frozenset(
    (
        torch.ops.aten._assert_scalar.default,  # noqa: SLF001  # torch's names
        torch.ops.aten._assert_async.msg,  # noqa: SLF001
        torch.ops.aten._assert_tensor_metadata.default,  # noqa: SLF001
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
    )
)
"""Operators without a result. What they assert of sizes, the client checks before each call."""
_SIZE = torch.ops.aten.sym_size.int
OUTER, LITERAL, GRAPH = "outer", "literal", "graph"
"""Names in a segment of weights that lie outside of its module, of literals, and of subgraphs, with a number."""


@dataclass(frozen=True, slots=True)
class Block:
    """A call of a module in the graph.

    Attributes:
        key: Identifies the call.
        path: The module's path (`layers.3`).
        kind: The module's class, with its module (`net.Block`).
    """

    key: str
    path: str
    kind: str


@dataclass(slots=True)
class Segment:
    """A part of a program's graph that runs as one.

    Attributes:
        block: The region; None between regions.
        nodes: Its nodes whose results are tensors, in order.
        inputs: Tensors that it reads from other segments or the caller.
        outputs: Its results that others read.
        constants: Names of the weights and literals that it reads, by their names in `module`.
        module: The segment as a module of its own; made by `Cut`.
    """

    block: Block | None
    nodes: list[Node]
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    module: torch.fx.GraphModule = field(init=False)


def blocks_of(node: Node) -> list[Block]:
    """Return the module calls that a node lies in, the outermost first and without the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    return [
        Block(str(key), path, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}")
        for key, (path, kind) in stack.items()
        if path
    ]


class Cut:
    """A program in segments.

    Attributes:
        segments: In the order in which they run.
        inputs: Placeholders of the caller's tensors.
        outputs: The program's results.

    Args:
        paths: Paths of the modules that become regions.

    Raises:
        RegionsImpossible: The program cannot be cut there.
    """

    def __init__(self, program: ExportedProgram, paths: Iterable[str]) -> None:
        self._program = program
        self._paths = frozenset(paths)
        self._constants = _constant_names(program)
        self.inputs = [
            node
            for node in program.graph.nodes
            if node.op == "placeholder" and node.name not in self._constants
        ]
        self.outputs = _outputs(program)
        self._place: dict[Node, int] = {}
        self.segments = self._divide()
        self._connect()
        for segment in self.segments:
            segment.module = _SegmentModule(program, segment, self._constants, self.outputs).build()

    def _divide(self) -> list[Segment]:
        segments: list[Segment] = []
        ended: set[str] = set()
        for node in self._program.graph.nodes:
            if not is_computed(node):
                continue
            block = next((item for item in blocks_of(node) if item.path in self._paths), None)
            last = segments[-1].block if segments else None
            if not segments or (block and block.key) != (last and last.key):
                if block and block.key in ended:
                    raise RegionsImpossible(f"operations of {block.path} are mixed with others")
                ended.add(last.key if last else "")
                segments.append(Segment(block, []))
            segments[-1].nodes.append(node)
            self._place[node] = len(segments) - 1
        return segments

    def _connect(self) -> None:
        """Find the tensors that pass between segments."""
        needed: dict[Node, None] = {}
        for segment in self.segments:
            own = set(segment.nodes)
            read = dict.fromkeys(
                item for node in segment.nodes for item in self._tensors(node) if item not in own
            )
            segment.inputs = [item for item in read if item.name not in self._constants]
            leaves = [item for node in segment.nodes for item in _size_leaves(node, self._is_scalar)]
            for leaf in leaves:
                tensor: Any = leaf.args[0]
                known = (*segment.inputs, *own)
                if tensor not in known and find_size(leaf, segment.inputs) is None:
                    segment.inputs.append(tensor)
            needed |= dict.fromkeys(segment.inputs)
        needed |= dict.fromkeys(self.outputs)
        for node in needed:
            if node in self._place:
                self.segments[self._place[node]].outputs.append(node)
            elif node not in self.inputs:
                raise RegionsImpossible(f"the result {node.name} is a constant")
        for segment in self.segments:
            segment.outputs.sort(key=segment.nodes.index)
            for node in (*segment.inputs, *segment.outputs):
                _require_tensor(node)
        self._check_written()

    def _check_written(self) -> None:
        """Refuse buffers that are written to and lie in several segments: in the single file each has its own copy."""
        written = find_mutated_placeholders(self._program)
        for name in written & self._constants.keys():
            readers = {self._place[node] for node in self._readers(name) if node in self._place}
            if len(readers) > 1:
                raise RegionsImpossible(
                    f"several parts use {self._constants[name]}, which the model writes to"
                )

    def _readers(self, name: str) -> Iterator[Node]:
        for node in self._program.graph.nodes:
            if any(item.name == name for item in node.all_input_nodes):
                yield node

    def _tensors(self, node: Node) -> Iterator[Node]:
        for item in node.all_input_nodes:
            if item.op == "placeholder" or is_computed(item):
                yield item

    def _is_scalar(self, node: Node) -> bool:
        return node.op == "call_function" and not is_computed(node)


def is_computed(node: Node) -> bool:
    """Return whether a node computes tensors, which belong to one segment; sizes are repeated where they are needed."""
    if node.op != "call_function" or node.target in _ASSERTIONS:
        return False
    value = node.meta.get("val")
    return not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool)


def find_size(leaf: Node, tensors: Sequence[Node]) -> tuple[Node, int] | None:
    """Return a tensor, and the dimension of it that has the size which a node reads from another tensor."""
    wanted = leaf.meta["val"]
    for tensor in tensors:
        value = tensor.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        for place, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt) and size.node.expr == wanted.node.expr:
                return tensor, place
    return None


def _require_tensor(node: Node) -> None:
    if not isinstance(node.meta.get("val"), torch.Tensor):
        raise RegionsImpossible(f"{node.name} passes from one part to another and is not a tensor")


def is_contiguous(value: torch.Tensor) -> bool:
    """Return whether a tensor of the export is contiguous."""
    return value.layout is torch.strided and bool(value.is_contiguous())


def boundary_value(node: Node) -> torch.Tensor:
    """Return a tensor as another segment reads it: contiguous, or as the caller gives it."""
    value: torch.Tensor = node.meta["val"]
    if node.op == "placeholder" or is_contiguous(value):
        return value
    with value.fake_mode:  # type: ignore[attr-defined]  # values of an export are fake tensors
        return value.contiguous()


def _size_leaves(node: Node, is_scalar: Any) -> Iterator[Node]:
    """Yield the reads of sizes that a node's arguments are computed from."""
    waiting = [item for item in node.all_input_nodes if is_scalar(item)]
    seen = set(waiting)
    while waiting:
        item = waiting.pop()
        if item.target is _SIZE:
            yield item
            continue
        if any(is_computed(other) for other in item.all_input_nodes):
            raise RegionsImpossible(f"{item.name} depends on the values of a tensor")
        more = [other for other in item.all_input_nodes if is_scalar(other) and other not in seen]
        seen.update(more)
        waiting += more


def _constant_names(program: ExportedProgram) -> dict[str, str]:
    signature = program.graph_signature
    if signature.inputs_to_lifted_custom_objs:
        raise RegionsImpossible("the program holds objects of TorchBind classes")
    found = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    if any("\n" in name for name in found.values()):  # the plan has a line for each name
        raise RegionsImpossible("a name of the model contains a line break")
    return found


def _outputs(program: ExportedProgram) -> list[Node]:
    signature = program.graph_signature
    output = next(node for node in reversed(program.graph.nodes) if node.op == "output")
    found = list(output.args[0])
    if len(found) != len(signature.user_outputs) or not all(
        isinstance(item, torch.fx.Node) for item in found
    ):
        raise RegionsImpossible("its results are not all tensors, or it returns what it writes to")
    return found


class _SegmentModule:
    """Builds the module of one segment."""

    def __init__(
        self, program: ExportedProgram, segment: Segment, constants: Mapping[str, str], final: Sequence[Node]
    ) -> None:
        self._final = frozenset(final)
        self._program = program
        self._segment = segment
        self._names = constants
        self._graph = torch.fx.Graph()
        self._made: dict[Node, Node] = {}
        self._attributes: dict[str, Any] = {}

    def build(self) -> torch.fx.GraphModule:
        """Return the module; it records the constants in the segment."""
        for number, node in enumerate(self._segment.inputs):
            made = self._graph.placeholder(f"x{number}")
            made.meta["val"] = boundary_value(node)
            self._made[node] = made
        for node in self._segment.nodes:
            self._copy(node)
        self._graph.output(tuple(self._result(node) for node in self._segment.outputs))
        return torch.fx.GraphModule(self._attributes, self._graph)

    def _result(self, node: Node) -> Node:
        made = self._made[node]
        if node in self._final or is_contiguous(node.meta["val"]):
            return made
        return self._graph.call_function(torch.ops.aten.contiguous.default, (made,))

    def _copy(self, node: Node) -> Node:
        for item in node.all_input_nodes:
            if item not in self._made:
                self._made[item] = self._make(item)
        made = self._graph.node_copy(node, self._made.__getitem__)
        self._made[node] = made
        return made

    def _make(self, node: Node) -> Node:
        if node.name in self._names:
            return self._read_constant(node)
        if node.op == "get_attr":
            return self._read_attribute(node)
        if node.target is _SIZE and node.args[0] not in self._made:
            found = find_size(node, self._segment.inputs)
            if found is None:
                raise RegionsImpossible(f"the size {node.name} is unknown in a region")
            made = self._graph.call_function(_SIZE, (self._made[found[0]], found[1]))
            made.meta.update(node.meta)
            return made
        return self._copy(node)

    def _read_constant(self, node: Node) -> Node:
        fqn = self._names[node.name]
        name = self._relative(fqn)
        program = self._program
        self._attributes[name] = (
            program.state_dict[fqn] if fqn in program.state_dict else program.constants[fqn]
        )
        self._segment.constants[name] = fqn
        made = self._graph.get_attr(name)
        made.meta["val"] = node.meta["val"]
        return made

    def _relative(self, fqn: str) -> str:
        block = self._segment.block
        if fqn in self._program.graph_signature.inputs_to_lifted_tensor_constants.values():
            return self._free_name(LITERAL)
        if block is None:
            return fqn
        return (
            fqn.removeprefix(f"{block.path}.") if fqn.startswith(f"{block.path}.") else self._free_name(OUTER)
        )

    def _free_name(self, kind: str) -> str:
        """Return a name with a number that nothing in the segment has: a module may have weights of such names."""
        block = self._segment.block
        prefix = f"{block.path}." if block else ""
        taken = {name.removeprefix(prefix).partition(".")[0] for name in self._names.values()}
        numbers = itertools.count(len(self._attributes))
        return next(
            name
            for name in (f"{kind}_{number}" for number in numbers)
            if name not in taken | self._attributes.keys()
        )

    def _read_attribute(self, node: Node) -> Node:
        value: Any = self._program.graph_module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        name = self._free_name(GRAPH)
        self._attributes[name] = value
        made = self._graph.get_attr(name)
        made.meta.update(node.meta)
        return made
