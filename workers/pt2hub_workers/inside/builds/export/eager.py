"""Eager runs of the original module, with which every artifact is compared."""

from __future__ import annotations

import contextlib
import re
import traceback
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub.client.publishing.live_models.kernel_failures import explain_kernel_failure
from pt2hub.client.publishing.live_models.module_copies import copy_module
from pt2hub.errors import (
    IndexOutOfRange,
    InputRefused,
    NanOutput,
    NoPower,
    Pt2hubError,
    UnsupportedOutput,
)
from pt2hub_workers.inside.builds.export import source_positions
from pt2hub_workers.inside.builds.export.call import order_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub_workers.inside.builds.export.inputs import Tensors

Outputs = list[torch.Tensor]
_ABOUT_DTYPES = re.compile(r"dtype|scalar type|Input type", re.IGNORECASE)
"""Words in torch's messages about two tensors with different dtypes."""
_TARGETS = ("float16", "bfloat16", "float32")
"""Dtypes that a target may override with."""


def run(module: torch.nn.Module, inputs: Tensors) -> Any:
    """Call an adapted model without gradients; the result keeps the model's structure.

    The model's own uses of torch.compile run uncompiled: a reference made by the compiler proves nothing about it.

    Raises:
        IndexOutOfRange: An integer input points beyond a table.
        KernelFailed: A Triton kernel cannot be compiled, or this GPU cannot run it.
        UnsupportedOutput: The model lacks an output that the spec selects.
    """
    args, kwargs = order_arguments(module, inputs)  # as for the export: hooks tell the two apart
    try:
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
            return module(*args, **kwargs)
    except Pt2hubError:
        raise
    except Exception as error:  # the model is the user's code and may raise anything
        if failure := explain_kernel_failure(error, where="source", display=source_positions.display_path):
            raise failure from error
        if isinstance(error, IndexError) and (ids := _integer_inputs(inputs)):
            raise IndexOutOfRange(
                f"index out of range in the example inputs: {error}",
                where=ids,
                hint="Lower randint's high to the size of the vocabulary (the embedding's num_embeddings).",
            ) from error
        if mismatch := _explain_dtype_mismatch(module, inputs, str(error)):
            raise InputRefused(
                f"the model raised {type(error).__name__}: {str(error).strip()[:500]}",
                where=mismatch[0],
                hint=mismatch[1],
            ) from error
        raise InputRefused(
            f"the model raised {type(error).__name__}: {str(error).strip()[:500]}",
            where="inputs",
            hint=f"Shapes given: {_format_shapes(inputs)}. Raised at {_model_line(error)}.",
        ) from error


@contextlib.contextmanager
def preserve_buffers(module: torch.nn.Module) -> Iterator[None]:
    """Restore the buffers after a run: the weights file and every comparison refer to the state before it."""
    before = [
        (owner, name, buffer, buffer.clone())
        for owner in module.modules()
        for name, buffer in owner.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        for owner, name, buffer, value in before:
            setattr(owner, name, buffer.copy_(value))  # the model may have put another tensor in its place


def run_flat(module: torch.nn.Module, inputs: Tensors) -> Outputs:
    """Return the model's output tensors as a flat list on the CPU, and restore its buffers."""
    with preserve_buffers(module):  # until the outputs are copied: one may be a buffer itself
        return copy_outputs(check_outputs(run(module, inputs)))


def run_twice(module: torch.nn.Module, inputs: Tensors) -> Outputs:
    """Return the outputs of a second call that uses the buffers of the first, flat and on the CPU."""
    with preserve_buffers(module):
        run(module, inputs)
        return copy_outputs(check_outputs(run(module, inputs)))


def copy_outputs(outputs: Outputs) -> Outputs:
    """Copy outputs to the CPU, into memory of their own."""
    return [leaf.detach().to("cpu", copy=True) for leaf in outputs]


def check_outputs(result: Any) -> Outputs:
    """Return the leaves of a result; all must be dense tensors in plain containers."""
    if what := next(_find_unsupported(result), None):
        raise UnsupportedOutput(
            f"unsupported output: the model returns {what}",
            where="source",
            hint="Every output must be a dense real tensor, alone or in tuples, lists or dicts whose keys are text or "
            "integers; `outputs` in the spec chooses among them.",
        )
    leaves: Outputs = pytree.tree_leaves(result)
    if not leaves:
        raise UnsupportedOutput(
            "the model returns no tensor",
            where="source",
            hint="It must return a tensor, alone or in tuples, lists or dicts.",
        )
    return leaves


def _find_unsupported(value: Any) -> Iterator[str]:
    """Describe the parts of a result that an artifact cannot return."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_complex():
            yield f"{value.layout} {value.dtype}"
    elif type(value) in (list, tuple):
        for item in value:
            yield from _find_unsupported(item)
    elif type(value) is dict:
        yield from (f"a dict with the key {key!r}" for key in value if type(key) not in (str, int))
        for item in value.values():
            yield from _find_unsupported(item)
    else:  # also containers that libraries have registered with torch's pytree
        yield type(value).__name__


def check_finite(outputs: Outputs, inputs: Tensors) -> None:
    """Refuse outputs that contain NaN or infinity."""
    for index, output in enumerate(outputs):
        if output.is_floating_point() and not bool(torch.isfinite(output).all()):
            raise NanOutput(
                f"output {index} contains NaN or infinity in eager mode at {_format_shapes(inputs)}",
                where=f"outputs[{index}]",
                hint="An artifact cannot be verified against such an output. Check the weights, the range of the generated "
                "inputs, and the smallest and largest sizes in dims.",
            )


def check_depends_on_inputs(one: Outputs, other: Outputs) -> None:
    """Refuse a model with outputs that do not depend on its inputs, before anything is compiled."""
    outputs = zip(one, other, strict=True)
    if all(left.shape == right.shape and torch.equal(left, right) for left, right in outputs):
        raise NoPower(
            "all outputs are the same for two different inputs: an artifact that ignores its inputs would pass verification",
            where="checks",
            hint="A zero-initialised last layer causes this: provide trained weights. To publish the model without this proof, "
            "write checks: {accept: [no_power]}.",
        )


def find_device(module: torch.nn.Module) -> torch.device:
    """Return the device of a module's tensors."""
    return next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def to_double(module: torch.nn.Module) -> torch.nn.Module:
    """Copy a module to float64; `.double()` on the original would convert the user's model in place.

    Raises:
        ModelNotCopyable: An attribute of the model cannot be copied.
    """
    return copy_module(module).double()


def convert_inputs(inputs: Tensors, dtype: torch.dtype) -> Tensors:
    """Convert floating-point inputs to another dtype."""
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}


def _integer_inputs(inputs: Tensors) -> str:
    return ", ".join(f"inputs.{k}" for k, v in inputs.items() if not v.is_floating_point())


def _explain_dtype_mismatch(module: torch.nn.Module, inputs: Tensors, text: str) -> tuple[str, str] | None:
    """Return the input whose floating dtype differs from the weights', with a hint; None if there is none."""
    weights = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    odd = [name for name, item in inputs.items() if item.is_floating_point() and item.dtype not in weights]
    if not (weights and odd and _ABOUT_DTYPES.search(text)):
        return None
    given, own = _dtype_name(inputs[odd[0]].dtype), "/".join(sorted(map(_dtype_name, weights)))
    named = ", ".join(f"inputs.{name}" for name in odd)
    hint = f"Set dtype: {own} for {named}: the model's weights are {own}, and the spec declares {given}."
    if given in _TARGETS:
        hint += (
            f" To run the model in {given}, leave the inputs at {own} and set `dtype: {given}` for the target "
            f"(targets: [{{target: auto, dtype: {given}}}]): weights and inputs are converted together."
        )
    return f"inputs.{odd[0]}.dtype", hint


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _format_shapes(inputs: Tensors) -> str:
    return ", ".join(f"{k} {str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for k, v in inputs.items())


def _model_line(error: BaseException) -> str:
    """Return the innermost line of the model's own code in a traceback."""
    frames = list(traceback.extract_tb(error.__traceback__))
    frame = ([item for item in frames if source_positions.is_models(item.filename)] or frames)[-1]
    return (
        f"{source_positions.display_path(frame.filename)}:{frame.lineno} ({(frame.line or '').strip()[:120]})"
    )
