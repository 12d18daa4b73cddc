"""torch.export: the model as its spec calls it, with the declared dimensions dynamic."""

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
from pt2hub.errors import ExportFailed
from pt2hub_workers.inside import adapting
from pt2hub_workers.inside.calling import arguments, in_order
from pt2hub_workers.inside.explaining import SCALED, explained
from pt2hub_workers.inside.multiples import check_sizes
from pt2hub_workers.inside.tracing import Attempt
from pt2hub_workers.inside.writing import written

if TYPE_CHECKING:
    from pt2hub.domain.specs import DimSpec, Spec, TargetSpec
    from pt2hub_workers.inside.inputs import Tensors

IMAGE_RANK = 4
"""channels_last is defined for tensors of this rank (NCHW)."""


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported program and how it is called.

    Attributes:
        program: The program.
        signature: The call contract for the artifact's config.
        mutated: Constants that the model writes to.
        notes: What callers should know of it.
    """

    program: torch.export.ExportedProgram
    signature: Signature
    mutated: frozenset[str]
    notes: tuple[str, ...] = ()


def export(
    module: torch.nn.Module, inputs: Tensors, spec: Spec, request: TargetSpec, device: str
) -> Exported:
    """Exports the module at the example sizes, with the declared dimensions dynamic.

    Args:
        module: Adapted, in eval mode, on the device, in the target's dtype.
        inputs: Example inputs by path, likewise.
        spec: For shapes and dimensions.
        request: The target's overrides.
        device: `cpu` or `cuda`.

    Raises:
        DimensionSpecialised: The model fixes a dimension that the spec declares dynamic.
        DataDependent: The model's control flow depends on the values of tensors.
        ExportFailed: torch.export refused the model, or left out that it writes to a buffer.
        InputMutated: The model writes to an input.
    """
    args, kwargs = in_order(module, inputs)
    attempt = Attempt(module, args, kwargs, dynamic_shapes(spec))
    heard = io.StringIO()  # torch prints the graph as far as it came, which belongs behind the explanation
    try:
        with contextlib.redirect_stderr(heard):
            program = torch.export.export(
                module, args, kwargs, dynamic_shapes=attempt.shapes, strict=spec.export.strict
            )
    except Exception as error:  # torch.export raises a dozen kinds, all about the model
        told = explained(error, attempt, spec)
        told.add_note(heard.getvalue())
        raise told from error
    sys.stderr.write(heard.getvalue())
    order = pytree.tree_leaves(in_order(module, {name: name for name in inputs}))
    check_sizes(program, order, spec)
    changed = written(program)
    for name, placeholder in zip(order, program.graph_signature.user_inputs, strict=True):
        if placeholder in changed:
            raise adapting.mutated(name)
    mutated = frozenset(name for place, name in _constants(program).items() if place in changed)
    _check_state(module, mutated)
    ordered = {name: inputs[name] for name in order}
    signature = _signature(program, module, ordered, spec, request, device)
    return Exported(program, signature, mutated, _notes(mutated))


def _check_state(module: torch.nn.Module, mutated: frozenset[str]) -> None:
    """Refuses a program that would answer each call like the first, where the model keeps state.

    torch.export drops `self.b = self.b + 1` without a word where it is strict (seen with torch 2.13).
    """
    buffers = dict(module.named_buffers(remove_duplicate=False))
    kept = {id(buffers[name]) for name in mutated if name in buffers}
    lost = [name for name in sorted(adapting.buffers_written(module)) if id(buffers.get(name)) not in kept]
    if lost:
        raise ExportFailed(
            f"the model writes to the buffer {lost[0]}, and torch.export left that out: it would answer each call like "
            "the first",
            where="source",
            hint=f"Write to it in place, such as self.{lost[0]}.copy_(...), or leave out export.strict.",
        )


def _notes(mutated: frozenset[str]) -> tuple[str, ...]:
    if not mutated:
        return ()
    names = ", ".join(sorted(mutated))
    return (f"the model writes to {names}: the artifact keeps state across calls, until it is reset",)


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


def _constants(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Names of parameters, buffers and other tensors of the model, by their placeholders."""
    signature = program.graph_signature
    return {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }


def dynamic_shapes(spec: Spec) -> dict[str, Any] | None:
    """The dynamic dimensions as torch.export takes them, None where there are none."""
    dims = {name: _dim(name, dim) for name, dim in spec.dims.items()}
    shapes = {
        item.name: {axis: dims[size] for axis, size in enumerate(item.shape) if isinstance(size, str)} or None
        for item in spec.inputs
    }
    return arguments(shapes) if dims else None


def _dim(name: str, dim: DimSpec) -> Any:  # noqa: ANN401  # torch's own types of dimensions
    """A dimension for torch; one of multiples is a number times a dimension of its own."""
    step = dim.multiple_of
    if step == 1:
        return torch.export.Dim(name, min=dim.min, max=dim.max)
    return step * torch.export.Dim(f"{name}{SCALED}", min=dim.min // step, max=dim.max // step)


def _signature(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    inputs: Tensors,
    spec: Spec,
    request: TargetSpec,
    device: str,
) -> Signature:
    """The call contract.

    Args:
        program: The program.
        module: What was exported.
        inputs: Its tensors by path, in the order the compiled code takes them.
        spec: For shapes and dimensions.
        request: For the memory format.
        device: `cpu` or `cuda`.
    """
    declared = {item.name: item for item in spec.inputs}
    call = adapting.call_of(module)
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
