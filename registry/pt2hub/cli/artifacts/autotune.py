"""Autotune candidates as text, in the form that PyTorch prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.cli.output import one_line
from pt2hub.domain.publishing.inductor_options import is_autotuned
from pt2hub.rendering.quantities import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console

    from pt2hub.domain.performance.autotune import Candidate, Operation
    from pt2hub.wire.artifacts import ArtifactView

_REUSED = "the code is reused; see the version that it was compiled for, if candidates were timed"
_NOT_REQUESTED = "no autotuning: neither compile.mode nor compile.options asks for it"
_NO_ALTERNATIVES = "no candidates were timed: the compiler had no alternatives to choose from"


def print_autotune(out: Console, target: str, view: ArtifactView) -> None:
    """Print one AUTOTUNE block for each operation of an artifact."""
    from pt2hub.domain.performance.autotune import operations

    found = operations(view.autotune)
    if not found:
        out.print(f"{target}: {_explain_absence(view.provenance)}")
        return
    out.print(f"{target}:")
    for operation in found:
        for line in _lines(operation):
            out.print(line, highlight=False, soft_wrap=True)


def _explain_absence(provenance: Mapping[str, Any]) -> str:
    if provenance.get("code_reused_from"):
        return _REUSED
    recorded = provenance.get("compile")
    options = recorded.get("options") if isinstance(recorded, dict) else None
    if not isinstance(options, dict):  # an older pt2hub did not record them
        return f"{_NOT_REQUESTED}, or the compiler had only one choice"
    return _NO_ALTERNATIVES if is_autotuned(options) else _NOT_REQUESTED


def _lines(operation: Operation) -> Iterable[str]:
    yield one_line(f"AUTOTUNE {operation.name}({operation.inputs})")
    if operation.strides:
        yield one_line(f"strides: {operation.strides}")
    yield one_line(f"dtypes: {operation.dtypes}")
    for candidate in operation.candidates:
        yield f"  {one_line(_line(candidate))}"
    count = len(operation.candidates)
    total = f"{format_count(count, 'candidate')}, {operation.failed} failed"
    if operation.benchmark_seconds is None:
        yield total
        return
    precompiling = operation.precompile_seconds or 0.0
    spent = format_duration(precompiling), format_duration(operation.benchmark_seconds)
    yield f"{total}; precompiling {spent[0]}, benchmarking {spent[1]}"


def _line(item: Candidate) -> str:
    time = (
        f"failed: {item.reason}"
        if item.milliseconds is None
        else f"{item.milliseconds:.4f} ms {item.share:.1f}%"
    )
    name = (
        f"{item.name} ({item.kernel})"
        if item.kernel not in (item.name, f"extern: {item.name}")
        else item.name
    )
    text = " ".join(part for part in (name, time, item.parameters) if part)
    return f"{text} <- chosen" if item.chosen else text
