"""torch.export of an adapted model, with the declared dimensions dynamic."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from pt2hub.domain.artifacts import Dim, Signature, TensorInput
from pt2hub.domain.publishing.spec import ProgramSource
from pt2hub.errors import ExportFailed
from pt2hub_workers.inside.builds.export import adapter
from pt2hub_workers.inside.builds.export.call import arguments, order_arguments
from pt2hub_workers.inside.builds.export.failures import SCALED_SUFFIX, explain_export_failure
from pt2hub_workers.inside.builds.export.model_lines import ExportCall
from pt2hub_workers.inside.builds.export.mutations import find_mutated_placeholders
from pt2hub_workers.inside.builds.export.size_guards import check_sizes

if TYPE_CHECKING:
    from pt2hub.domain.publishing.spec import DimSpec, Spec, TargetSpec
    from pt2hub_workers.inside.builds.export.inputs import Tensors

IMAGE_RANK = 4
"""channels_last is defined for tensors of this rank (NCHW)."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """An exported program and its signature."""

    program: torch.export.ExportedProgram
    signature: Signature
    mutated: frozenset[str]
    notes: tuple[str, ...] = ()


def export(
    module: torch.nn.Module, inputs: Tensors, spec: Spec, request: TargetSpec, device: str
) -> ExportResult:
    """Export the module at the example sizes, with the declared dimensions dynamic.

    Raises:
        DimensionSpecialised: The model fixes a dimension that the spec declares dynamic.
        DataDependent: The model's control flow depends on the values of tensors.
        ExportFailed: torch.export refused the model, or dropped its write to a buffer.
    """
    args, kwargs = order_arguments(module, inputs)
    attempt = ExportCall(module, args, kwargs, dynamic_shapes(spec))
    printed = io.StringIO()  # torch prints the partial graph, which belongs after the explanation
    try:
        with contextlib.redirect_stderr(printed):
            program = torch.export.export(
                module, args, kwargs, dynamic_shapes=attempt.shapes, strict=_is_strict(spec)
            )
    except Exception as error:  # torch.export raises a dozen types, all about the model
        explained = explain_export_failure(error, attempt, spec)
        explained.add_note(printed.getvalue())
        raise explained from error
    sys.stderr.write(printed.getvalue())
    order = pytree.tree_leaves(order_arguments(module, {name: name for name in inputs}))
    check_sizes(program, order, spec)
    changed = find_mutated_placeholders(program)
    for name, placeholder in zip(order, program.graph_signature.user_inputs, strict=True):
        if placeholder in changed:
            raise adapter.input_mutated_error(name)
    mutated = frozenset(name for place, name in _constants(program).items() if place in changed)
    _check_state(module, mutated)
    ordered = {name: inputs[name] for name in order}
    signature = _signature(program, module, ordered, spec, request, device)
    return ExportResult(program, signature, mutated, _notes(mutated))


def _is_strict(spec: Spec) -> bool:
    """Return whether the export is strict: of a program it never is, since no Python is left to interpret."""
    return spec.export.strict and not isinstance(spec.source, ProgramSource)


def _check_state(module: torch.nn.Module, mutated: frozenset[str]) -> None:
    """Refuse a program that lost the model's state and would answer each call like the first.

    In strict mode torch.export drops `self.b = self.b + 1` without a warning (seen with torch 2.13).
    """
    buffers = dict(module.named_buffers(remove_duplicate=False))
    kept = {id(buffers[name]) for name in mutated if name in buffers}
    lost = [name for name in sorted(adapter.get_written_buffers(module)) if id(buffers.get(name)) not in kept]
    if lost:
        raise ExportFailed(
            f"torch.export dropped the model's write to the buffer {lost[0]}: the artifact would answer each call like the "
            "first",
            where="source",
            hint=f"Write to the buffer in place (self.{lost[0]}.copy_(...)), or remove export.strict from the spec.",
        )


def _notes(mutated: frozenset[str]) -> tuple[str, ...]:
    if not mutated:
        return ()
    names = ", ".join(sorted(mutated))
    return (f"the model writes to {names}: the artifact keeps this state across calls until it is reset",)


def used_constants(program: torch.export.ExportedProgram) -> list[str]:
    """Return the names of the parameters and buffers that the program reads.

    Not the compiled code's own table: it lacks values that the compiler baked in, which verification must find.
    """
    read = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    kinds = (InputKind.PARAMETER, InputKind.BUFFER)
    return [
        str(item.target)
        for item in program.graph_signature.input_specs
        if item.kind in kinds and item.arg.name in read
    ]


def _constants(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Return the names of the model's parameters, buffers and other tensors, by placeholder."""
    signature = program.graph_signature
    return {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }


def dynamic_shapes(spec: Spec) -> dict[str, Any] | None:
    """Return the dynamic dimensions in torch.export's form; None if there are none."""
    dims = {name: _dim(name, dim) for name, dim in spec.dims.items()}
    shapes = {
        item.name: {axis: dims[size] for axis, size in enumerate(item.shape) if isinstance(size, str)} or None
        for item in spec.inputs
    }
    return arguments(shapes) if dims else None


def _dim(name: str, dim: DimSpec) -> Any:
    """Return torch's dimension; for multiples, the step times a dimension of its own."""
    step = dim.multiple_of
    if step == 1:
        return torch.export.Dim(name, min=dim.min, max=dim.max)
    return step * torch.export.Dim(f"{name}{SCALED_SUFFIX}", min=dim.min // step, max=dim.max // step)


def _signature(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Tensors,
    spec: Spec,
    request: TargetSpec,
    device: str,
) -> Signature:
    """Return the artifact's signature.

    Args:
        inputs: Example tensors by path, in the order of the compiled code's arguments.
    """
    declared = {item.name: item for item in spec.inputs}
    call = adapter.get_call(module)
    return Signature(
        arguments=call.arguments,
        inputs=tuple(
            TensorInput(
                name=name,
                shape=tuple(declared[name].shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                memory_format=request.memory_format if tensor.dim() == IMAGE_RANK else "contiguous_format",
            )
            for name, tensor in inputs.items()
        ),
        dims={name: Dim(dim.min, dim.max, dim.multiple_of) for name, dim in spec.dims.items()},
        device=device,
        in_spec=pytree.treespec_dumps(program.call_spec.in_spec),
        out_spec=pytree.treespec_dumps(program.call_spec.out_spec),
        fixed=dict(call.fixed),
    )
