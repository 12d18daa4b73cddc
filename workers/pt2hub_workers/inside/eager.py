"""The original module, called in eager mode: what every artifact is compared with."""

from __future__ import annotations

import contextlib
import copy
import re
import traceback
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub.errors import (
    IndexOutOfRange,
    InputRefused,
    NanOutput,
    NoPower,
    Pt2hubError,
    UnsupportedOutput,
)
from pt2hub_workers.inside import places
from pt2hub_workers.inside.calling import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub_workers.inside.inputs import Tensors

Outputs = list[torch.Tensor]
_ABOUT_DTYPES = re.compile(r"dtype|scalar type|Input type", re.IGNORECASE)
"""What torch says where two tensors of an operation have different dtypes."""
_TARGETS = ("float16", "bfloat16", "float32")
"""What a target may override the dtype with."""


def run(module: torch.nn.Module, inputs: Tensors) -> Any:  # noqa: ANN401  # whatever the model returns
    """Calls an adapted model, without gradients; the result keeps the model's structure.

    What the model itself has torch.compile do runs uncompiled: a reference made by the compiler proves nothing of it.

    Args:
        module: The model.
        inputs: Its tensors by path.

    Raises:
        IndexOutOfRange: An integer input points beyond a table.
        InputRefused: The model raised.
        UnsupportedOutput: The model lacks an output that the spec keeps.
    """
    args, kwargs = in_order(module, inputs)  # as for the export: hooks tell the two apart
    try:
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
            return module(*args, **kwargs)
    except Pt2hubError:
        raise
    except Exception as error:  # the model is users' code: whatever it raises is theirs
        if isinstance(error, IndexError) and (ids := _integer_inputs(inputs)):
            raise IndexOutOfRange(
                f"the model refuses the example ids: {error}",
                where=ids,
                hint="Lower randint's high to the size of the vocabulary (the embedding's num_embeddings).",
            ) from error
        if said := _dtypes_at_odds(module, inputs, str(error)):
            raise InputRefused(
                f"the model raised {type(error).__name__}: {str(error).strip()[:500]}",
                where=said[0],
                hint=said[1],
            ) from error
        raise InputRefused(
            f"the model raised {type(error).__name__}: {str(error).strip()[:500]}",
            where="inputs",
            hint=f"Shapes given: {_shapes(inputs)}. Raised at {_users_line(error)}.",
        ) from error


@contextlib.contextmanager
def buffers_kept(module: torch.nn.Module) -> Iterator[None]:
    """Undoes what a run writes to buffers: the weights file and every comparison mean the state before."""
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
    """The model's output tensors as a flat list, on the CPU; buffers are as before afterwards.

    Raises:
        UnsupportedOutput: Something other than a tensor is among them.
    """
    with buffers_kept(module):  # until the outputs are copied: one may be a buffer itself
        return copied(check_outputs(run(module, inputs)))


def run_twice(module: torch.nn.Module, inputs: Tensors) -> Outputs:
    """As `run_flat`, of a second call that finds the buffers as the first one left them."""
    with buffers_kept(module):
        run(module, inputs)
        return copied(check_outputs(run(module, inputs)))


def copied(outputs: Outputs) -> Outputs:
    """The same values on the CPU, in memory of their own."""
    return [leaf.detach().to("cpu", copy=True) for leaf in outputs]


def check_outputs(result: Any) -> Outputs:  # noqa: ANN401  # whatever the model returns
    """The leaves of a result, all of them dense tensors, in containers that a caller with torch alone can make.

    Raises:
        UnsupportedOutput: Something else is among them.
    """
    if what := next(_unfit(result), None):
        raise UnsupportedOutput(
            f"the model returns {what}",
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


def _unfit(value: Any) -> Iterator[str]:  # noqa: ANN401  # whatever the model returns
    """What in a result no artifact can return."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_complex():
            yield f"{value.layout} {value.dtype}"
    elif type(value) in (list, tuple):
        for item in value:
            yield from _unfit(item)
    elif type(value) is dict:
        yield from (f"a dict with the key {key!r}" for key in value if type(key) not in (str, int))
        for item in value.values():
            yield from _unfit(item)
    else:  # also containers of libraries that have told torch how to take them apart
        yield type(value).__name__


def check_finite(outputs: Outputs, inputs: Tensors) -> None:
    """Refuses outputs that nothing can be compared with.

    Args:
        outputs: Of an eager run.
        inputs: Its inputs, for the error.

    Raises:
        NanOutput: An output is not finite.
    """
    for index, output in enumerate(outputs):
        if output.is_floating_point() and not bool(torch.isfinite(output).all()):
            raise NanOutput(
                f"output {index} holds NaN or infinity in eager mode at {_shapes(inputs)}",
                where=f"outputs[{index}]",
                hint="Nothing can be proven against it. Check the weights, the generated inputs' range, and the "
                "smallest and largest sizes in dims.",
            )


def check_moves(one: Outputs, other: Outputs) -> None:
    """Refuses, before anything is compiled, a model whose output does not depend on its inputs.

    Args:
        one: Outputs on some inputs.
        other: Outputs on others.

    Raises:
        NoPower: Every output is the same for both.
    """
    outputs = zip(one, other, strict=True)
    if all(left.shape == right.shape and torch.equal(left, right) for left, right in outputs):
        raise NoPower(
            "every output is the same for two different inputs: a package that ignores its inputs would pass",
            where="checks",
            hint="Zero-initialised last layers do this: give trained weights. To publish it unproven, write "
            "checks: {accept: [no_power]}.",
        )


def device_of(module: torch.nn.Module) -> torch.device:
    """Where a module's tensors are."""
    return next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def in_double(module: torch.nn.Module) -> torch.nn.Module:
    """A float64 copy; `.double()` on the original would convert the user's model in place."""
    return copy.deepcopy(module).double()


def converted(inputs: Tensors, dtype: torch.dtype) -> Tensors:
    """The inputs with floating point ones in another dtype."""
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}


def _integer_inputs(inputs: Tensors) -> str:
    return ", ".join(f"inputs.{k}" for k, v in inputs.items() if not v.is_floating_point())


def _dtypes_at_odds(module: torch.nn.Module, inputs: Tensors, text: str) -> tuple[str, str] | None:
    """Which input has another floating dtype than the weights, and what of the spec to change; None where none has."""
    weights = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    odd = [name for name, item in inputs.items() if item.is_floating_point() and item.dtype not in weights]
    if not (weights and odd and _ABOUT_DTYPES.search(text)):
        return None
    given, own = _dtype(inputs[odd[0]].dtype), "/".join(sorted(map(_dtype, weights)))
    named = ", ".join(f"inputs.{name}" for name in odd)
    hint = f"Write dtype: {own} to {named}: the model's weights are {own}, and the spec declares {given}."
    if given in _TARGETS:
        hint += (
            f" To run the model in {given}, leave the inputs at {own} and write `dtype: {given}` to the target "
            f"(targets: [{{target: auto, dtype: {given}}}]): weights and inputs are converted together."
        )
    return f"inputs.{odd[0]}.dtype", hint


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shapes(inputs: Tensors) -> str:
    return ", ".join(f"{k} {str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for k, v in inputs.items())


def _users_line(error: BaseException) -> str:
    """The innermost frame of the model's own code: where the user would look first."""
    frames = list(traceback.extract_tb(error.__traceback__))
    frame = ([item for item in frames if places.is_models(item.filename)] or frames)[-1]
    return f"{places.shown(frame.filename)}:{frame.lineno} ({(frame.line or '').strip()[:120]})"
