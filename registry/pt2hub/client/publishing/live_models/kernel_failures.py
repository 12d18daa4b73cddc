"""Explanations of errors that Triton raises when a model calls a kernel: the kernel, the caller's line, and what to do.

Triton is not imported: a model without kernels needs none. Its errors are recognised by their classes' names and by the
frames of its launcher in the traceback.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.errors import ExportFailed, KernelFailed, KernelNotTraced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

_LAUNCHER = tuple(
    os.path.join("triton", "runtime", name)  # noqa: PTH118  # part of a path, compared as text
    for name in ("jit.py", "autotuner.py", "interpreter.py")
)
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_OWN = ("pt2hub", "pt2hub_workers")
_NO_GPU = re.compile(r"\d+ active drivers|cannot be accessed from Triton \(cpu tensor")
"""Triton's messages where it finds no GPU, and where a tensor is not on it."""
_MAX_CODE = 120
_MAX_MESSAGE = 300
_DEF = re.compile(r"^\s*def\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """The call of a kernel that failed.

    Attributes:
        file: Path of the caller's file on this machine; empty where the caller is an exported program.
    """

    kernel: str
    file: str
    line: int
    code: str


def find_kernel_call(error: BaseException) -> KernelCall | None:
    """Return the outermost call of a kernel in an error's traceback; None if it passed no kernel's launcher."""
    for item in _chain(error):
        file, line = "", 0
        trace = item.__traceback__
        while trace is not None:
            if (kernel := _kernel_in(trace)) is not None:
                code = linecache.getline(file, line).strip()[:_MAX_CODE] if file else ""
                return KernelCall(_name(kernel), file, line, code)
            if _is_models(trace.tb_frame.f_code.co_filename):
                file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
            trace = trace.tb_next
    return None


def explain_untraced_kernel(
    error: BaseException, *, where: str, strict: str, display: Callable[[str], str] = str
) -> ExportFailed | None:
    """Return the error for a plain call of a kernel that torch.export tried to run on fake tensors; None for other errors.

    torch's own message speaks of data pointers, and advises an opaque operator, which no artifact could run.

    Args:
        strict: How this kind of publication requests a strict export.
        display: How the caller's file is named.
    """
    call = find_kernel_call(error)
    if call is None:
        return None
    return KernelNotTraced(
        f"torch.export cannot trace the call of the Triton kernel {call.kernel}{_at(call, display)}"
        f"{f': {call.code}' if call.code else ''}",
        where=where,
        hint="Make the function that calls it an operator: decorate it with torch.library.triton_op and launch the kernel with "
        f"torch.library.wrap_triton({call.kernel})[grid](...). Or leave the code as it is and export strictly: {strict}.",
        context=_context(call, display),
    )


def explain_kernel_failure(
    error: BaseException, *, where: str, display: Callable[[str], str] = str
) -> KernelFailed | None:
    """Return the error for a kernel that Triton could not compile or launch on this device; None for other errors."""
    call = find_kernel_call(error)
    if call is None:
        return None
    kinds = [item for item in _chain(error) if _is_tritons(item)]
    explained = _explain_device(error, call, display)
    if explained is None and kinds:
        explained = _explain_resources(kinds[0], call, display)
        explained = explained or _explain_compilation(kinds, call, error, display)
    if explained is None:
        return None
    message, hint = explained
    return KernelFailed(message, where=where, hint=hint, context=_context(call, display))


def _explain_device(
    error: BaseException, call: KernelCall, display: Callable[[str], str]
) -> tuple[str, str] | None:
    if not _NO_GPU.search(str(error)):
        return None
    return (
        f"the Triton kernel {call.kernel}, called{_at(call, display)}, runs on a GPU only: {' '.join(str(error).split())}",
        (
            "Choose targets with a GPU. From Python, move model and inputs to the GPU; on a machine without one, publish the source: "
            'publish(..., code="folder", entry="module:function").'
        ),
    )


def _explain_resources(
    error: BaseException, call: KernelCall, display: Callable[[str], str]
) -> tuple[str, str] | None:
    if type(error).__name__ != "OutOfResources":
        return None
    what, required, limit = (str(getattr(error, name, "?")) for name in ("name", "required", "limit"))
    unit = " bytes of" if "memory" in what else ""
    return (
        f"the Triton kernel {call.kernel}, called{_at(call, display)}, needs {required}{unit} {what}; this GPU has {limit}",
        (
            "Lower the kernel's block sizes or num_stages. Several sizes for different GPUs are configurations of "
            "@triton.autotune: those that a GPU cannot run are skipped there."
        ),
    )


def _explain_compilation(
    kinds: list[BaseException], call: KernelCall, error: BaseException, display: Callable[[str], str]
) -> tuple[str, str]:
    messages = [str(getattr(item, "error_message", None) or "").strip() for item in kinds]
    said = next(filter(None, reversed(messages)), "") or str(kinds[-1]).strip()
    place = _kernel_place(kinds, error, display)
    return (
        (
            f"Triton cannot compile the kernel {call.kernel}, called{_at(call, display)}{f', at {place}' if place else ''}: "
            f"{type(kinds[-1]).__name__}: {' '.join(said.split())[:_MAX_MESSAGE]}"
        ),
        "Correct the kernel; calling the model once on this GPU raises the same error.",
    )


def _kernel_place(kinds: list[BaseException], error: BaseException, display: Callable[[str], str]) -> str:
    """Return file, line and code of the kernel's statement that Triton refused; empty if it is unknown.

    Triton counts lines from the kernel's `def`, and its file's from the first decorator.
    """
    kernel = next(filter(None, map(_innermost_kernel, _chain(error))), None)
    for item in kinds:
        line, source = getattr(getattr(item, "node", None), "lineno", None), getattr(item, "src", None)
        if line is None or kernel is None or source != getattr(kernel, "src", None):
            continue
        raw = "".join(getattr(kernel, "raw_src", ()))
        begin = _DEF.search(raw)
        function = getattr(kernel, "fn", None)
        if begin is None or function is None:
            continue
        file = function.__code__.co_filename
        number = kernel.starting_line_number + raw.count("\n", 0, begin.start()) + line - 1
        return f"{display(file)}:{number} ({linecache.getline(file, number).strip()[:_MAX_CODE]})"
    return ""


def _innermost_kernel(error: BaseException) -> Any:
    found, trace = None, error.__traceback__
    while trace is not None:
        found = _kernel_in(trace) or found
        trace = trace.tb_next
    return found


def _kernel_in(trace: TracebackType) -> Any:
    """Return the kernel that a frame of Triton's launcher launches; None for other frames."""
    if not trace.tb_frame.f_code.co_filename.endswith(_LAUNCHER):
        return None
    kernel = trace.tb_frame.f_locals.get("self")
    return kernel if hasattr(kernel, "fn") else None


def _is_models(file: str) -> bool:
    """Return whether a file is the model's own; torch's wrapper may stand between it and Triton's launcher."""
    own = [f"{folder}{os.sep}" for name in _OWN for folder in getattr(sys.modules.get(name), "__path__", ())]
    return not (file.startswith((_TORCH, "<", *own)) or file.endswith(_LAUNCHER))


def _name(kernel: Any) -> str:
    while hasattr(kernel, "fn") and not hasattr(kernel, "src"):  # below autotuning and heuristics
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def _is_tritons(error: BaseException) -> bool:
    return any(cls.__module__.partition(".")[0] == "triton" for cls in type(error).__mro__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from or while handling, the outermost first."""
    seen: set[int] = set()
    item: BaseException | None = error
    while item is not None and id(item) not in seen:
        seen.add(id(item))
        yield item
        item = item.__cause__ or item.__context__


def _at(call: KernelCall, display: Callable[[str], str]) -> str:
    return f" at {display(call.file)}:{call.line}" if call.file else " by the program"


def _context(call: KernelCall, display: Callable[[str], str]) -> dict[str, Any]:
    return asdict(call) | {"file": display(call.file)}
