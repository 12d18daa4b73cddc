"""Checks a model's tensors: they must be dense, real, with values, and of torch's own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from pt2hub.archive.safetensors_header import WIDTHS
from pt2hub.errors import Detail, UnsupportedTensor

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DETAILS = 20
"""Maximum number of tensors in one error; a quantised model has hundreds."""
_COMPLEX = "Store real and imaginary parts: register torch.view_as_real(t), and call torch.view_as_complex in forward."
_DEQUANTISE = (
    "Return the model before quantisation, or call dequantize() on the tensor. To run in lower precision, set "
    "`dtype: bfloat16` for the target."
)
_UNWRAP = (
    "Export the model yourself and publish the program (`pt2hub publish --program FILE`): "
    "torch.export.export(model, args).run_decompositions() converts such weights to plain tensors. For a DTensor, call "
    "full_tensor()."
)


def check_tensors(module: torch.nn.Module) -> None:
    """Refuse models with weights or buffers that cannot be exported, stored and compared.

    Args:
        module: The unchanged module that the source built.

    Raises:
        UnsupportedTensor: Tensors are complex, sparse, quantised, nested, without values, or of a subclass of Tensor.
    """
    found = [(name, *problem) for name, problem in _problems(module)]
    if not found:
        return
    name, what, hint = found[0]
    others = f", and {len(found) - 1} more" if len(found) > 1 else ""
    raise UnsupportedTensor(
        f"{name} {what}{others}",
        where="source",
        details=tuple(Detail(name, what) for name, what, _ in found[:MAX_DETAILS]),
        hint=hint,
    )


def _problems(module: torch.nn.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    for named in (module.named_parameters, module.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            if problem := _problem(tensor):
                yield name, problem
    for name, owner in module.named_modules():
        if isinstance(owner, torch.jit.ScriptModule):  # itself such an object
            continue
        for attribute, value in vars(owner).items():
            if isinstance(value, torch.ScriptObject):
                where = f"{name}.{attribute}".lstrip(".")
                what = f"of {type(owner).__name__} is not a tensor: it is packed for the quantised kernels of one machine"
                yield where, (what, _DEQUANTISE)


def _problem(tensor: torch.Tensor) -> tuple[str, str] | None:
    """Return the first problem of a tensor and what to do; the order matters, because later checks need earlier ones."""
    kind = type(tensor)
    if is_lazy(tensor):
        return (
            "has no shape yet: its layer is lazy",
            "Call the model once on an example before the builder returns it.",
        )
    if tensor.is_meta:
        return "has no values: it is on the meta device", "Build the model on the CPU with real values."
    if _is_subclass(kind):
        return f"has type {kind.__module__}.{kind.__name__}, a subclass of Tensor", _UNWRAP
    if tensor.is_quantized:
        return f"is quantised ({_short(tensor.dtype)})", _DEQUANTISE
    if tensor.layout is not torch.strided or tensor.is_nested:
        return (
            f"is not dense ({'nested' if tensor.is_nested else _short(tensor.layout)})",
            "Call to_dense() on it, or to_padded_tensor(0.0) on a nested one, before returning the model.",
        )
    if tensor.is_complex():
        return f"is complex ({_short(tensor.dtype)})", _COMPLEX
    if _short(tensor.dtype) not in WIDTHS:
        return (
            f"has dtype {_short(tensor.dtype)}, which safetensors files do not support",
            "Convert it to another dtype.",
        )
    return None


def _is_subclass(kind: type[torch.Tensor]) -> bool:
    """Return whether a class overrides operations; a subclass without overrides computes as Tensor does."""
    plain = torch.nn.Parameter if issubclass(kind, torch.nn.Parameter) else torch.Tensor
    own = ("__torch_function__", "__torch_dispatch__")
    return any(_find_definition(kind, name) is not _find_definition(plain, name) for name in own)


def _find_definition(kind: type, name: str) -> object:
    return next(vars(base)[name] for base in kind.__mro__ if name in vars(base))


def _short(value: torch.dtype | torch.layout) -> str:
    return str(value).removeprefix("torch.").removeprefix("_")
