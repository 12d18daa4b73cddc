"""The candidates of autotuning as text, in the form that PyTorch prints them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.cli.words import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from pt2hub.domain.autotuning import Candidate, Operation
    from pt2hub.wire.artifacts import ArtifactView

_REUSED = (
    "its code is reused; candidates, if any were timed, stand beside the version that it was compiled for"
)
_UNTUNED = (
    "nothing was tuned: max_autotune is not in compile.options, or the compiler had nothing to choose between"
)


def print_autotune(out: Console, target: str, view: ArtifactView) -> None:
    """Print one AUTOTUNE block for each operation of an artifact.

    Args:
        out: Where to.
        target: The artifact's target.
        view: The artifact.
    """
    from pt2hub.domain.autotuning import operations

    found = operations(view.autotune)
    if not found:
        out.print(
            f"{target}: {_REUSED if view.provenance.get('code_reused_from') else _UNTUNED}", markup=False
        )
        return
    out.print(f"{target}:", markup=False)
    for operation in found:
        for line in _lines(operation):
            out.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(operation: Operation) -> Iterable[str]:
    yield one_line(f"AUTOTUNE {operation.name}({operation.inputs})")
    if operation.strides:
        yield one_line(f"strides: {operation.strides}")
    yield one_line(f"dtypes: {operation.dtypes}")
    for candidate in operation.candidates:
        yield f"  {one_line(_line(candidate))}"
    count = len(operation.candidates)
    told = f"{count} {'candidate' if count == 1 else 'candidates'}, {operation.failed} failed"
    if operation.benchmark_seconds is None:
        yield told
        return
    precompiling = operation.precompile_seconds or 0.0
    yield f"{told}; precompiling {precompiling:.3f} s, benchmarking {operation.benchmark_seconds:.3f} s"


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
