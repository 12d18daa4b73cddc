"""`pt2hub kernels`: the kernels of an artifact's code, with the operations that each holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, print_text
from pt2hub.cli.references import Reference  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.domain.debug_logs import DEBUG_LOGS, check_kind

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.cli.tables import Cell
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.fusion import FusedKernel
    from pt2hub.wire.kernels import KernelsView
    from pt2hub.wire.resolution import ResolvedReference


@panels.command(
    panels.READING,
    "pt2hub kernels vision/resnet18@prod",
    "pt2hub kernels vision/resnet18@3 --target torch2.13-cpu-x86_64_v3 --json",
    "pt2hub kernels vision/resnet18@3 --debug fusion",
)
def kernels(
    reference: Reference,
    *,
    target: Annotated[
        str | None, typer.Option(help="Target of the artifact; needed if the version has several.")
    ] = None,
    debug: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"Print torch's log of the compile instead: {', '.join(DEBUG_LOGS)}. The spec's compile.debug asks for it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the kernels of an artifact and what each computes.

    A kernel has the lines of the model, and the operations of the exported graph, that it holds.
    With --json, also the exported graph: the opcode, target, output shape and source line of each node.
    """
    from pt2hub.client.client import Client

    if debug is not None:
        check_kind(debug)
    with Client() as client:
        digest = _select(client.artifacts.resolve(reference), target)
        if debug is not None:
            log = client.artifacts.debug_log(digest, debug)
            emit(log, lambda _: print_text(log.text))
            return
        view = client.artifacts.kernels(digest)
    emit(view, lambda out: _print_kernels(out, view))


def _select(resolved: ResolvedReference, target: str | None) -> Digest:
    """Return the artifact for a target, or the only one.

    Raises:
        NotFound: The version has no artifact for the target.
        Ambiguous: The version has several artifacts and no target is given.
    """
    from pt2hub.errors import Ambiguous, NotFound

    found = {item.target: item.digest for item in resolved.artifacts}
    names = ", ".join(sorted(found))
    where = f"{resolved.model}@{resolved.number}"
    if target is None and len(found) == 1:
        return next(iter(found.values()))
    if target is None:
        raise Ambiguous(
            f"{where} has {len(found)} artifacts", where="target", hint=f"Add --target with one of: {names}"
        )
    if target not in found:
        raise NotFound(
            f"{where} has no artifact for {target[:80]!r}", where="target", hint=f"Its targets: {names}"
        )
    return found[target]


def _print_kernels(out: Console, view: KernelsView) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.kernels import RESOURCE_LABELS, format_operations, has_resources, reused_lines
    from pt2hub.rendering.quantities import format_count

    out.print(f"{view.model}@{view.number} for {view.target}", style="bold", highlight=False)
    if view.compiled_for != view.artifact:
        out.print(f"The code is reused from {view.compiled_for}.", highlight=False, soft_wrap=True)
    with_resources = has_resources(view.kernels)
    resources = tuple(label.upper() for label in RESOURCE_LABELS) if with_resources else ()
    rows = [
        (
            kernel.name,
            str(kernel.calls),
            *(_resources(kernel) if with_resources else ()),
            [f"{line} {operations}".strip() for line, operations in lines],
        )
        for kernel, lines in format_operations(view)
    ]
    headings = ("KERNEL", "CALLS", *resources, "OPERATIONS")
    empty = (
        "The code that was compiled for it calls no kernel."
        if view.reused_parts
        else "The code calls no kernel."
    )
    print_table(out, headings, rows, empty=empty)
    for line, _ in reused_lines(view):
        out.print(line, highlight=False, soft_wrap=True)
    if view.left_out:
        out.print(
            f"{format_count(view.left_out, 'kernel or node')} beyond the limits of the record: not listed."
        )


def _resources(kernel: FusedKernel) -> tuple[Cell, ...]:
    from pt2hub.rendering.quantities import format_bytes
    from pt2hub.rendering.times import NOTHING

    shared = NOTHING if kernel.shared_bytes is None else format_bytes(kernel.shared_bytes)
    registers, spills = (NOTHING if n is None else str(n) for n in (kernel.registers, kernel.spills))
    return registers, shared, spills
