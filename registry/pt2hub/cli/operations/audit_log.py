"""`pt2hub admin audit-log`: who changed what."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit
from pt2hub.domain.audit import Action  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.domain.codec import encode
from pt2hub.rendering.times import format_local_time

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.wire.audit_log import AuditPage


@panels.command(
    None,
    "pt2hub admin audit-log --model vision/resnet18",
    "pt2hub admin audit-log --principal ci --since 7d",
    "pt2hub admin audit-log --jsonl",
)
def audit_log(
    *,
    model: Annotated[str | None, typer.Option(help="Only changes of this model, team/name.")] = None,
    principal: Annotated[
        str | None, typer.Option(help="Only what the token or account with this name did.")
    ] = None,
    action: Annotated[Action | None, typer.Option(help="Only this action.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DURATION|TIME", help="Only the last 7d or 12h, or since an ISO 8601 time."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of entries, newest first.")
    ] = 50,
    jsonl: Annotated[
        bool,
        typer.Option("--jsonl", help="Print all entries as JSON, one per line, oldest first, for an export."),
    ] = False,
) -> None:
    """Show who changed what.

    Every change has one entry, which is never changed or deleted. A refused request has none.
    """
    from pt2hub.cli.operations.admin import server_config
    from pt2hub.server import admin
    from pt2hub.server.services.access.audit_log import read_filter

    wanted = read_filter(model, principal, action, _earliest(since) if since else None)
    if jsonl:
        for entry in admin.export_audit_log(server_config(), wanted):
            typer.echo(json.dumps(encode(entry)))
        return
    page = admin.audit_log(server_config(), wanted, limit=limit)
    emit(page, lambda out: _print(out, page))


def _earliest(since: str) -> str:
    """Return a time; a duration counts back from now."""
    from pt2hub.client.availability import parse_duration
    from pt2hub.errors import BadConfiguration

    try:
        seconds = parse_duration(since, "--since")
    except BadConfiguration:
        return since  # a time, which the filter checks
    try:
        return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC).isoformat()


def _print(out: Console, page: AuditPage) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.audit_log import format_change

    rows = [
        (
            format_local_time(entry.at),
            str(entry.principal) + (f" #{entry.principal.id}" if entry.principal.id else ""),
            entry.action,
            entry.resource,
            format_change(entry),
        )
        for entry in page.entries
    ]
    headings = ("TIME", "WHO", "ACTION", "RESOURCE", "CHANGE")
    print_table(out, headings, rows, empty="No entries match.", more=page.next is not None)
