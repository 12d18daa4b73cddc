"""Copies of models, whose attributes may be operators, Triton kernels, locks and other things that Python cannot copy."""

from __future__ import annotations

import contextlib
import copy
import copyreg
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.errors import ModelNotCopyable

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWN = frozenset(vars(torch.nn.Module()))
"""Attributes that every module has."""
_SHARED: tuple[type, ...] = (
    torch._library.custom_ops.CustomOpDef,  # noqa: SLF001  # what custom_op and triton_op return
    torch.library.Library,
    type(torch.ops.aten),
    torch.jit.ScriptFunction,
    ModuleType,
    type(threading.Lock()),
    type(threading.RLock()),
)
"""What a copy shares with its original, besides functions, which Python's copies share: values of these types are functions,
collections of functions, or locks."""

_LOCK = threading.Lock()
"""Held while the process's table of reductions is changed."""


def copy_module(module: torch.nn.Module, *, share_parameters: bool = False) -> torch.nn.Module:
    """Return a copy of a model; operators and kernels are shared.

    Args:
        share_parameters: Whether the copy has the same parameters, for calls that write to buffers alone.

    Raises:
        ModelNotCopyable: An attribute of the model cannot be copied.
    """
    shared: dict[int, Any] = {id(item): item for item in module.parameters()} if share_parameters else {}
    try:
        copied: torch.nn.Module = _copy(module, shared)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # the model's own parts may raise anything
        raise _not_copyable(module, error) from error
    return copied


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    with _share_functions():
        return copy.deepcopy(value, dict(memo))


@contextlib.contextmanager
def _share_functions() -> Iterator[None]:
    """Make Python's copies return values of the shared types as they are; torch does so for its own operators."""
    table = copyreg.dispatch_table
    with _LOCK:
        added = {kind for kind in (*_SHARED, *_kernel_types()) if kind not in table}
        table.update(dict.fromkeys(added, _refer))
        try:
            yield
        finally:
            for kind in added:
                del table[kind]


def _refer(value: object) -> str:
    """Return text: to Python's copies, this says that a value is its own copy."""
    return type(value).__qualname__


def _kernel_types() -> Iterator[type[Any]]:
    """Yield the types of Triton's kernels, if the model has imported Triton."""
    if triton := sys.modules.get("triton.runtime.jit"):
        yield from _subclasses(triton.KernelInterface)


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for item in kind.__subclasses__():
        yield from _subclasses(item)


def _not_copyable(module: torch.nn.Module, error: Exception) -> ModelNotCopyable:
    text = " ".join(str(error).split())[:300]
    what = _find_culprit(module)
    return ModelNotCopyable(
        f"the model cannot be copied: {what} raises {type(error).__name__}: {text}",
        where="source",
        hint="Create such a value in forward, or at the top of a module of your code, instead of keeping it in the model. "
        "Without `dtype` in the spec and its targets, no copy is needed.",
    )


def _find_culprit(module: torch.nn.Module) -> str:
    """Name the attribute that cannot be copied, or the innermost module."""
    tensors: dict[int, Any] = {id(item): item for item in (*module.parameters(), *module.buffers())}
    for name, owner in reversed(list(module.named_modules())):
        for attribute, value in vars(owner).items():
            if attribute not in _OWN and not _can_copy(value, tensors):
                return f"its attribute {f'{name}.{attribute}'.lstrip('.')} ({type(value).__name__})"
        if not _can_copy(owner, tensors):
            return f"its submodule {name} ({type(owner).__name__})" if name else type(owner).__name__
    return "a copy"


def _can_copy(value: Any, tensors: dict[int, Any]) -> bool:
    try:
        _copy(value, tensors)
    except Exception:  # noqa: BLE001  # the model's own parts may raise anything
        return False
    return True
