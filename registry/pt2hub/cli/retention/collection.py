"""`pt2hub admin collect` and `pt2hub admin accept`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.access.lifetimes import parse_lifetime
from pt2hub.cli.output import emit, is_json, is_quiet, note

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.wire.collections import CollectionReport

_PROGRESS_S = 5.0


@panels.command(None, "pt2hub admin collect --dry-run", "pt2hub admin collect --grace 1h")
def collect(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be marked.")] = False,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long ago a blob must have lost its last reference, such as 1h; PT2HUB_COLLECT_GRACE_SECONDS "
            "where omitted.",
        ),
    ] = None,
) -> None:
    """Remove blobs that nothing needs, and what crashes left behind.

    The server does it every hour. It is safe beside publishes, pulls and other collections.
    With S3, marked blobs are removed once presigned URLs of them have ended, 15 minutes later.
    """
    from pt2hub.cli.operations.admin import server_config
    from pt2hub.server.admin import collect as collect_blobs

    wait = parse_lifetime(grace, "--grace") if grace else None
    report = collect_blobs(server_config(), dry_run=dry_run, grace=wait, on_progress=_Progress())
    emit(report, lambda out: _print_report(out, report, is_grace_given=grace is not None))


@panels.command(None, 'pt2hub admin accept sha256:9f86d081884c... --reason "false alarm"')
def accept(
    what: Annotated[
        str,
        typer.Argument(
            metavar="DIGEST|VERSION",
            help="Digest that a forced deletion refused, or the deleted version (team/name@3) for all of its digests.",
        ),
    ],
    *,
    reason: Annotated[str, typer.Option(help="Reason, kept in the audit log.")],
) -> None:
    """Let bytes be stored again that a forced deletion had removed."""
    from pt2hub.cli.operations.admin import server_config
    from pt2hub.server.admin import accept as accept_again

    if not reason.strip():
        raise click.UsageError('--reason "..." is required; the audit log keeps it.')
    digests = accept_again(server_config(), what, reason)
    emit(
        {"digests": digests, "refused": False},
        lambda out: out.print("\n".join(f"{digest} may be stored again." for digest in digests)),
    )


class _Progress:
    """Prints the counts now and then, on standard error."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, report: CollectionReport) -> None:
        now = time.monotonic()
        if is_json() or is_quiet() or now - self._last < _PROGRESS_S:
            return
        self._last = now
        note(f"{report.marked} marked, {report.removed} removed, {report.listed} objects listed")


def _print_report(out: Console, report: CollectionReport, *, is_grace_given: bool) -> None:
    from pt2hub.rendering.quantities import format_bytes, format_count, format_duration

    marked = f"{format_count(report.marked, 'blob')} ({format_bytes(report.marked_bytes)})"
    if report.dry_run:
        out.print(f"Would mark {marked} that nothing needs.")
        if report.in_grace:
            kept = f"{format_count(report.in_grace, 'blob')} ({format_bytes(report.in_grace_bytes)})"
            stay = "stays until its grace ends" if report.in_grace == 1 else "stay until their grace ends"
            advice = "." if is_grace_given else "; a shorter one: --grace 1h"
            out.print(f"{kept} that nothing needs {stay}{advice}")
    else:
        removed = f"{format_count(report.removed, 'blob')} ({format_bytes(report.removed_bytes)})"
        out.print(f"Marked {marked}, removed {removed} in {format_duration(report.seconds)}.")
        out.print(
            f"Listed {format_count(report.listed, 'object')}; removed {report.orphans} that a crash had left behind."
        )
    if report.waiting:
        waiting = f"{format_count(report.waiting, 'marked blob')} ({format_bytes(report.waiting_bytes)})"
        out.print(f"{waiting} can still be read by presigned URLs; a later collection removes them.")
    if report.stuck:
        out.print(
            f"{format_count(report.stuck, 'object')} could not be removed: the server's log names them; later collections try again."
        )
    if report.unknown:
        out.print(
            f"{format_count(report.unknown, 'object')} without a row stay: pt2hub admin reindex adds rows for them."
        )
    saved = max(0, report.referenced_bytes - report.stored_bytes)
    out.print(
        f"Stored: {format_bytes(report.stored_bytes)}; artifacts refer to {format_bytes(report.referenced_bytes)}: sharing "
        f"saves {format_bytes(saved)}."
    )
