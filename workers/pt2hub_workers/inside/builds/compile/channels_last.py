"""Weights of convolutions in channels_last, for code that computes convolutions in that layout.

With separate weights Inductor converts them in every call (torch 2.11 and 2.13, a TODO in its `kernel/conv.py`). Here they
are put into that layout before the code is generated: it declares their strides, and a client lays them out when it loads
them. The exported program and the weights file stay as they are.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.archive.constants_layout import can_reorder
from pt2hub.archive.strides import order_in_memory
from pt2hub.domain.publishing.inductor_options import CHANNELS_LAST
from pt2hub_workers.inside.builds.compile.inductor_hooks import wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

_DIMENSIONS = 4
"""Of the weight of a convolution over images."""
_SMALL_CHANNELS = 64
"""Inductor leaves graphs alone whose convolutions have no more channels (torch 2.13, `GraphLowering.decide_layout_opt`)."""
_NODES_PER_CONVOLUTION = 300
"""As before: from so many nodes for each convolution on."""
_GROUPS = 6
"""Place of the number of groups among the arguments of `aten.conv2d`."""


def prefers_channels_last(program: ExportedProgram) -> bool:
    """Return whether a program's convolutions are faster in channels_last on a GPU.

    Inductor's own rule, which it does not apply where a size is dynamic, and stricter: no convolution may have groups, and
    all are over images. On an H100 resnet18 takes 0.62 of its time (decision 0077).
    """
    found = [
        node for node in program.graph.nodes if "conv" in str(node.target) and node.op == "call_function"
    ]
    weights: list[Any] = [node.args[1] for node in found if _is_plain(node)]
    shapes = [weight.meta["val"].shape for weight in weights]
    if not found or len(shapes) < len(found):
        return False
    if len(program.graph.nodes) >= _NODES_PER_CONVOLUTION * len(found):
        return False
    return any(int(max(shape[0], shape[1])) > _SMALL_CHANNELS for shape in shapes)


def _is_plain(node: Node) -> bool:
    """Return whether a node is a convolution over images without groups."""
    if node.target not in (torch.ops.aten.conv2d.default, torch.ops.aten.conv2d.padding):
        return False
    return len(node.args) <= _GROUPS or bool(node.args[_GROUPS] == 1)


@contextmanager
def store_channels_last(options: Mapping[str, Any]) -> Iterator[None]:
    """Store the weights of convolutions in channels_last within the block, if the options request that layout."""
    from torch._inductor.graph import GraphLowering

    if not options.get(CHANNELS_LAST):
        yield
        return
    with wrap(GraphLowering, "run", _run_with_weights):
        yield


def _run_with_weights(run: Callable[..., Any], graph: Any, *args: Any) -> Any:
    """Generate the code of a graph; the graph has its own weights again afterwards."""
    weights = find_weights(graph.module) if graph.layout_opt else {}
    for name, weight in weights.items():
        set_tensor(graph.module, name, lay_out(weight))
    try:
        return run(graph, *args)
    finally:
        for name, weight in weights.items():
            set_tensor(graph.module, name, weight)


def find_weights(module: GraphModule) -> dict[str, torch.Tensor]:
    """Return the tensors that only convolutions over images read, and only as their weights, by name."""
    users: dict[str, list[Node]] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        users.setdefault(str(node.target), []).extend(node.users)
    return {
        name: weight
        for name, readers in users.items()
        if readers and all(_is_weight(name, reader) for reader in readers)
        if _can_lay_out(weight := _get(module, name))
    }


def lay_out(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight in channels_last."""
    value = weight.detach().contiguous(memory_format=torch.channels_last)
    return torch.nn.Parameter(value, requires_grad=False) if isinstance(weight, torch.nn.Parameter) else value


def _is_weight(name: str, user: Node) -> bool:
    """Return whether a node is a convolution that reads a tensor as its weight alone."""
    if user.target is not torch.ops.aten.convolution.default:
        return False
    places = [place for place, item in enumerate(user.args) if getattr(item, "target", None) == name]
    return places == [1]


def _can_lay_out(weight: torch.Tensor) -> bool:
    """Return whether a tensor has another layout in channels_last, and servers can rebuild it."""
    if weight.dim() != _DIMENSIONS or not weight.numel() or not weight.is_contiguous():
        return False
    order = order_in_memory(weight.shape, lay_out(weight.new_empty(weight.shape, device="meta")).stride())
    if order is None or order == tuple(sorted(order)):  # such as a weight of 1x1
        return False
    return can_reorder(weight.shape, order, weight.numel() * weight.element_size())


def _get(module: torch.nn.Module, name: str) -> torch.Tensor:
    owner, _, leaf = name.rpartition(".")
    found: torch.Tensor = getattr(module.get_submodule(owner), leaf)
    return found


def set_tensor(module: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    """Set a parameter, buffer or other tensor of a module or its submodules."""
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, value)
