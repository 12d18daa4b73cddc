"""Descriptions of exported programs as JSON, equal in every process for equal programs: nodes, values, ranges, subgraphs.

Node names, stack traces, paths and versions are left out; kernels, functions and constants that a node references by
number or object are described by their content. PyTorch's serializer is not used: it refuses programs that call Triton
kernels (torch 2.11) or writes a number instead of them (2.13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.export.graph_signature import ConstantArgument

from pt2hub_workers.inside.builds.key import own_code
from pt2hub_workers.inside.builds.key.code_values import CodeValues, describe_tensor
from pt2hub_workers.inside.builds.key.global_names import NoDigest
from pt2hub_workers.inside.builds.key.triton_kernels import kernel_name

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_KERNEL, _CONSTANTS = "kernel_idx", "constant_args_idx"
_UNREAD = {
    **dict.fromkeys(
        ("dropout", "dropout_", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), (2, 1)
    ),
    "batch_norm": (5, 6),
    "lstm": (6, 5),
    "gru": (6, 5),
}
"""ATen operators that read an argument in training only: indices of `train` and of that argument."""
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class ProgramGraph:
    """Description of one program, with the operators and kernels that it calls.

    Attributes:
        unnamed: Sentences about parts without a digest; empty if the description is complete.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.operators: dict[str, torch._ops.OpOverload] = {}
        self.kernels: set[str] = set()
        self.unnamed: list[str] = []
        self._program = program
        self._code = CodeValues()  # shared, so that a kernel with several calls is described once

    def describe(self) -> list[Any]:
        """Describe everything about the program that may shape code, except layouts and values of constants."""
        program = self._program
        return [
            str(program.dialect),
            self._describe_module(program.graph_module),
            self._describe_signature(),
            sorted([str(symbol), str(bounds)] for symbol, bounds in program.range_constraints.items()),
            self._describe_guards(),
            self._describe_objects(),
        ]

    def _describe_module(self, module: torch.fx.GraphModule) -> list[Any]:
        numbers: dict[torch.fx.Node, int] = {}
        lines = []
        for node in module.graph.nodes:
            numbers[node] = len(numbers)
            lines.append(self._describe_node(node, module, numbers))
        return lines

    def _describe_node(
        self, node: torch.fx.Node, module: torch.fx.GraphModule, numbers: dict[torch.fx.Node, int]
    ) -> list[Any]:
        if node.op == "call_function":
            target = self._describe_target(node)
        elif node.op in ("get_attr", "call_module"):
            target = self._describe_attribute(module, str(node.target))
        else:
            target = str(node.target) if node.op == "call_method" else ""
        kwargs = dict(node.kwargs)
        kernel = self._take_kernel(kwargs) if _KERNEL in kwargs else None
        requested = node.meta.get("custom")  # annotations for the compiler by `torch.fx.traceback.annotate`
        parts = (_read_arguments(node), kwargs, node.meta.get("val"), requested or None)
        return [node.op, target, kernel, *(self._describe(part, numbers) for part in parts)]

    def _describe_target(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        if isinstance(target, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for it
            return self._take_operator(target)
        if isinstance(target, torch._ops.HigherOrderOperator):  # noqa: SLF001  # the same
            kind = type(target).__module__
            if not own_code.is_own_module(kind):
                self.unnamed.append(f"the graph calls {target.name()}, a higher-order operator of {kind}")
            return f"higher_order.{target.name()}"
        module, name = (
            getattr(target, "__module__", None),
            getattr(target, "__qualname__", repr(type(target))),
        )
        if module is None or not own_code.is_own_module(module):
            self.unnamed.append(f"the graph calls {module}.{name}")
        return f"{module}.{name}"

    def _take_operator(self, operator: torch._ops.OpOverload) -> str:
        self.operators[str(operator)] = operator
        return str(operator)

    def _describe_attribute(self, module: torch.nn.Module, path: str) -> Any:
        value: Any = module
        for name in path.split("."):
            value = getattr(value, name)
        if isinstance(value, torch.fx.GraphModule):
            return ["graph", self._describe_module(value)]
        if isinstance(value, torch.nn.Module) and own_code.is_own_module(type(value).__module__):
            return ["module", type(value).__qualname__, self._name_of(vars(value).get("_buffers"), path)]
        return self._name_of(value, path)

    def _take_kernel(self, kwargs: dict[str, Any]) -> Any:
        """Remove a node's kernel numbers from its arguments; describe the kernel and its constant arguments."""
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        number, constants = kwargs.pop(_KERNEL), kwargs.pop(_CONSTANTS, None)
        kernel = kernel_side_table.id_to_kernel.get(number)
        if kernel is None:
            self.unnamed.append(
                f"the graph calls Triton kernel number {number}, which is unknown in this process"
            )
            return None
        name = kernel_name(kernel)
        self.kernels.add(name)
        given = {} if constants is None else kernel_side_table.constant_args.get(constants, {})
        return [
            self._name_of(kernel, f"the Triton kernel {name}"),
            self._name_of(given, f"constants of {name}"),
        ]

    def _describe(self, value: Any, numbers: dict[torch.fx.Node, int]) -> Any:
        if isinstance(value, torch.fx.Node):
            return ["node", numbers[value]]
        if isinstance(value, torch._ops.OpOverload):  # noqa: SLF001  # an argument of a higher-order operator
            return self._take_operator(value)
        if isinstance(value, torch.Tensor):
            return self._describe_fake(value)
        if isinstance(value, _SYMBOLIC):
            return _describe_symbolic(value)
        if isinstance(value, list | tuple):
            return ["list", *(self._describe(item, numbers) for item in value)]
        if isinstance(value, dict):
            return ["dict", *([str(key), self._describe(item, numbers)] for key, item in value.items())]
        if isinstance(value, slice):
            return [
                "slice",
                *(self._describe(item, numbers) for item in (value.start, value.stop, value.step)),
            ]
        return self._name_of(value, "an argument of the graph")

    def _describe_fake(self, tensor: torch.Tensor) -> list[Any]:
        strided = tensor.layout is torch.strided
        sizes = [*tensor.shape, *(tensor.stride() if strided else ())]
        texts = [str(tensor.dtype), str(tensor.device), str(tensor.layout)]
        offset = tensor.storage_offset() if strided else 0
        return ["tensor", *texts, *(_describe_symbolic(size) for size in (*sizes, offset))]

    def _describe_signature(self) -> list[Any]:
        signature = self._program.graph_signature
        places = {node.name: place for place, node in enumerate(self._program.graph_module.graph.nodes)}
        specs: list[Any] = [*signature.input_specs, *signature.output_specs]
        return [
            [
                str(spec.kind),
                places.get(spec.arg.name, spec.arg.name if isinstance(spec.arg, ConstantArgument) else None),
                type(spec.arg).__name__,
                repr(getattr(spec.arg, "value", None)),
                spec.target,
                getattr(spec, "persistent", None),
            ]
            for spec in specs
        ]

    def _describe_guards(self) -> list[str]:
        """Return torch.export's guards on sizes, which the compiler uses."""
        for node in self._program.graph_module.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and (environment := _shape_environment(value)) is not None:
                return sorted({str(guard.expr) for guard in environment.guards})
        return []

    def _describe_objects(self) -> list[Any]:
        """Return the names of constants that are not tensors: objects of TorchBind classes."""
        found = {
            key: value
            for key, value in self._program.constants.items()
            if not isinstance(value, torch.Tensor)
        }
        self.unnamed += [
            f"the constant {name} is an object of {type(value).__name__}" for name, value in found.items()
        ]
        return sorted(found)

    def _name_of(self, value: Any, what: str) -> Any:
        self._code.restart_count()  # the limit applies to one value, and a large graph has many
        try:
            return describe_tensor(value) if isinstance(value, torch.Tensor) else self._code.describe(value)
        except NoDigest as error:
            self.unnamed.append(f"{what} uses {error}")
            return None


def _read_arguments(node: torch.fx.Node) -> tuple[Any, ...]:
    """Return a node's arguments without those that have no effect, such as a dropout's probability in eval mode."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":  # noqa: SLF001  # no public name
        return node.args
    train, unread = _UNREAD.get(target._schema.name.removeprefix("aten::"), (len(node.args), 0))  # noqa: SLF001  # the same
    if train >= len(node.args) or node.args[train] is not False:
        return node.args
    return tuple(None if place == unread else item for place, item in enumerate(node.args))


def _describe_symbolic(value: Any) -> Any:
    if not isinstance(value, _SYMBOLIC):
        return value
    node = value.node
    hint = node.hint if node.has_hint() else None
    return ["symbolic", type(value).__name__, sympy.srepr(node.expr), repr(hint)]


def _shape_environment(tensor: torch.Tensor) -> Any:
    mode = getattr(tensor, "fake_mode", None)
    return None if mode is None else mode.shape_env
