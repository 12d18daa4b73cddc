"""Export of a live model with torch.export, with concise errors."""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.client.publishing.live_models.kernel_calls import savable_kernel_calls
from pt2hub.client.publishing.live_models.kernel_failures import explain_untraced_kernel
from pt2hub.errors import DataDependent, DimensionSpecialised, ExportFailed, Pt2hubError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_LONGEST = 600
_USER_CODE = re.compile(r'File "[^"]+", line \d+, in \w+\n[^\n]*')
_FIXES = re.compile(r"Suggested fixes:\s*\n((?:[ \t]+\S.*\n?)+)")
_LOUD = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")
_ELSE = 'Change the model so that torch.export accepts it, or publish its source: publish(..., code="folder", entry="module:function").'


def export(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    shapes: dict[str, Any] | None,
    strict: bool,
) -> torch.export.ExportedProgram:
    """Export a model without changing it.

    Raises:
        DataDependent: Its control flow depends on values of tensors.
        DimensionSpecialised: It fixes a dimension that should be dynamic.
        KernelNotTraced: It calls a Triton kernel plainly, and the export is not strict.
        ExportFailed: torch.export refused it for another reason.
    """
    try:
        with _quiet():
            return torch.export.export(model, tuple(args), dict(kwargs), dynamic_shapes=shapes, strict=strict)
    except Exception as exc:  # torch.export raises a dozen kinds, all about the model
        raise _export_error(exc) from exc


def save(program: torch.export.ExportedProgram, path: Path) -> None:
    """Write a program to a file, calls of Triton kernels by the kernels' names.

    Raises:
        ExportFailed: It holds something that torch cannot write.
    """
    try:
        with warnings.catch_warnings(), savable_kernel_calls(program):
            # Weights that are views, such as a transposed one: their storages are written, as they should be.
            warnings.filterwarnings("ignore", "No complete tensor found in the group", UserWarning)
            torch.export.save(program, path)
    except Pt2hubError:
        raise
    except Exception as exc:  # likewise
        raise ExportFailed(
            f"torch.export.save cannot write the program: {_first_sentence(str(exc))}",
            where="model",
            hint=_ELSE,
        ) from exc


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the tracebacks that torch logs in addition to raising, unless the user set a log level."""
    loggers = [logger for name in _LOUD if not (logger := logging.getLogger(name)).level]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)


def _export_error(exc: Exception) -> ExportFailed | DimensionSpecialised:
    if untraced := explain_untraced_kernel(exc, where="model", strict='export={"strict": True}'):
        return untraced
    text = str(exc).strip()
    fixes = _FIXES.search(text)
    suggestion = (
        "torch.export suggests: " + "; ".join(line.strip() for line in fixes[1].splitlines())
        if fixes
        else None
    )
    lines = _USER_CODE.findall(text)
    place = f" at {' '.join(lines[-1].split())}" if lines else ""
    said = f"{type(exc).__name__}: {_first_sentence(text)}"
    if "data-dependent" in text:
        return DataDependent(
            f"The model's control flow depends on tensor values{place}: {said}",
            where="model",
            hint=suggestion or f"Use torch.cond or torch.where instead. {_ELSE}",
        )
    if "Constraints violated" in text:
        return DimensionSpecialised(
            f"The model does not allow these dynamic_shapes{place}: {said}",
            where="dynamic_shapes",
            hint=suggestion or "Leave the dimension out of dynamic_shapes, or change the model.",
        )
    return ExportFailed(
        f"torch.export refused the model{place}: {said}", where="model", hint=suggestion or _ELSE
    )


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())[:_LONGEST]
