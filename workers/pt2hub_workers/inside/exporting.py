"""torch.export, with its refusals explained."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from pt2hub.domain.artifacts import Dim, Signature, TensorInput
from pt2hub.errors import DimensionSpecialised, ExportFailed
from pt2hub_workers.inside.eager import argument_names

if TYPE_CHECKING:
    from pt2hub.domain.specs import Spec, TargetSpec
    from pt2hub_workers.inside.inputs import Tensors


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported program and how it is called.

    Attributes:
        program: The program.
        signature: The call contract for the artifact's config.
        mutated: Constants that the model writes to.
    """

    program: torch.export.ExportedProgram
    signature: Signature
    mutated: frozenset[str]


def export(
    module: torch.nn.Module, inputs: Tensors, spec: Spec, request: TargetSpec, device: str
) -> Exported:
    """Exports the module at the example sizes, with the declared dimensions dynamic.

    Args:
        module: In eval mode, on the device, in the target's dtype.
        inputs: Example inputs by name, likewise.
        spec: For shapes and dimensions.
        request: The target's overrides.
        device: `cpu` or `cuda`.

    Raises:
        DimensionSpecialised: The model fixes a dimension that the spec declares dynamic.
        ExportFailed: torch.export refused the model.
    """
    args, kwargs = _call(module, inputs)
    try:
        program = torch.export.export(
            module, args, kwargs, dynamic_shapes=_dynamic_shapes(module, spec), strict=False
        )
    except Exception as error:  # torch.export raises a dozen kinds, all about the model
        raise _explained(error, spec) from error
    graph = program.graph_signature
    mutated = frozenset(graph.buffers_to_mutate.values())
    return Exported(program, _signature(program, module, inputs, spec, request, device), mutated)


def used_constants(program: torch.export.ExportedProgram) -> list[str]:
    """Names of the parameters and buffers that the program reads.

    Not the compiled code's own table: a value that the compiler baked in is missing there, and is just what
    the gate looks for.
    """
    read = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    kinds = (InputKind.PARAMETER, InputKind.BUFFER)
    return [
        str(item.target)
        for item in program.graph_signature.input_specs
        if item.kind in kinds and item.arg.name in read
    ]


def _call(module: torch.nn.Module, inputs: Tensors) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments as far as they follow forward's own order, keywords after a gap."""
    names = argument_names(module, list(inputs))
    positional = []
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if name not in inputs or parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            break
        positional.append(name)
    args = tuple(inputs[name] for name in positional)
    return args, {name: inputs[name] for name in names if name not in positional}


def _dynamic_shapes(module: torch.nn.Module, spec: Spec) -> dict[str, Any] | None:
    dims = {name: torch.export.Dim(name, min=dim.min, max=dim.max) for name, dim in spec.dims.items()}
    shapes = {
        item.name: {axis: dims[size] for axis, size in enumerate(item.shape) if isinstance(size, str)} or None
        for item in spec.inputs
    }
    return {name: shapes[name] for name in argument_names(module, list(shapes))}


def _signature(  # the parts of one value
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Tensors,
    spec: Spec,
    request: TargetSpec,
    device: str,
) -> Signature:
    declared = {item.name: item for item in spec.inputs}
    names = argument_names(module, list(inputs))
    return Signature(
        arguments=tuple(names),
        inputs=tuple(
            TensorInput(
                name=name,
                shape=tuple(declared[name].shape),
                dtype=str(inputs[name].dtype).removeprefix("torch."),
                memory_format=request.memory_format
                if inputs[name].dim() == IMAGE_RANK
                else "contiguous_format",
            )
            for name in names
        ),
        dims={name: Dim(dim.min, dim.max) for name, dim in spec.dims.items()},
        device=device,
        in_spec=pytree.treespec_dumps(program.call_spec.in_spec),
        out_spec=pytree.treespec_dumps(program.call_spec.out_spec),
    )


IMAGE_RANK = 4
"""channels_last is defined for tensors of this rank (NCHW)."""


def _explained(error: Exception, spec: Spec) -> DimensionSpecialised | ExportFailed:
    text = str(error).strip()
    for name in spec.dims:
        if re.search(rf"Constraints violated \(.*\b{name}\b|specialized.*\b{name}\b|\b{name}\b = \d+", text):
            return DimensionSpecialised(
                f"the model fixes dimension {name}: {_first_sentence(text)}",
                where=f"dims.{name}",
                hint=_suggestion(text)
                or f"Write the number in the shape instead of {name}, or change the model "
                "so that it does not depend on that size (a reshape with a constant is the usual cause).",
            )
    return ExportFailed(
        f"torch.export refused the model: {type(error).__name__}: {_first_sentence(text)}",
        where="source",
        hint=_suggestion(text) or "The whole message is in the build's log.",
    )


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())[:600]


def _suggestion(text: str) -> str | None:
    match = re.search(r"Suggested fixes:\s*\n((?:\s+.*\n?)+)", text)
    return "torch.export suggests: " + "; ".join(match[1].split("\n")).strip() if match else None
