"""`pt2hub retention`: which versions are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.wire.retention import RetentionPreview, RetentionView

_Scope = Annotated[str, typer.Argument(metavar="MODEL|TEAM", help="team/name, or team for all its models.")]


def register(app: typer.Typer) -> None:
    """Add the group to the app."""
    group = typer.Typer(
        help="Retention policies: which versions are kept.", no_args_is_help=True, suggest_commands=False
    )
    panels.add(group, show, set_policy, rm, preview)
    app.add_typer(group, name="retention", rich_help_panel=panels.PUBLISHING)


@panels.command(None, "pt2hub retention show vision/resnet18")
def show(scope: _Scope) -> None:
    """Show the policy that holds for a model or a team."""
    from pt2hub.client.client import Client

    with Client() as client:
        view = client.retention.policy(scope)
    emit(view, lambda out: _print_policy(out, view))


@panels.command(
    None,
    "pt2hub retention set vision/resnet18 --last 10 --pulled-within 90",
    "pt2hub retention set vision --everything",
    name="set",
)
def set_policy(
    scope: _Scope,
    *,
    last: Annotated[
        int | None, typer.Option(metavar="N", help="Keep the newest N versions that have an artifact.")
    ] = None,
    pulled_within: Annotated[
        int | None,
        typer.Option(metavar="DAYS", help="Also keep what was pulled or published within so many days."),
    ] = None,
    everything: Annotated[bool, typer.Option("--everything", help="Keep everything, the default.")] = False,
) -> None:
    """Set the policy of a model, or of a team's models without one.

    What an alias pins is always kept. Nothing is deleted before the next hourly run,
    which `pt2hub retention preview` shows.
    """
    from pt2hub.client.client import Client

    if everything == (last is not None):
        raise click.UsageError("Give either --last N or --everything.")
    if pulled_within is not None and last is None:
        raise click.UsageError("--pulled-within requires --last.")
    with Client() as client:
        view = client.retention.set_policy(scope, last=last, pulled_within_days=pulled_within)
    emit(view, lambda out: _print_policy(out, view))


@panels.command(None, "pt2hub retention rm vision/resnet18")
def rm(scope: _Scope) -> None:
    """Remove the policy of a model or a team.

    A model's team's policy holds from then on; without one, everything is kept.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        view = client.retention.remove_policy(scope)
    emit(view, lambda out: _print_policy(out, view))


@panels.command(None, "pt2hub retention preview vision")
def preview(scope: _Scope) -> None:
    """Show what the policies would delete now, and what they keep."""
    from pt2hub.client.client import Client

    with Client() as client:
        view = client.retention.preview(scope)
    emit(view, lambda out: _print_preview(out, view))


def _print_policy(out: Console, view: RetentionView) -> None:
    out.print(one_line(_policy_text(view)))


def _policy_text(view: RetentionView) -> str:
    from pt2hub.rendering.retention import describe_kept, describe_origin

    kept, origin = f"{view.scope}: {describe_kept(view)}", describe_origin(view)
    if view.set_on is None:
        return f"{kept}; {origin}"
    return f"{kept}{f' ({origin})' if origin else ''}{f', set by {view.by}' if view.by else ''}"


def _print_preview(out: Console, view: RetentionPreview) -> None:
    from pt2hub.rendering.quantities import format_bytes, format_count

    for policy in view.policies:
        out.print(one_line(_policy_text(policy)))
    for name in view.goes:
        out.print(one_line(f"goes: {name}"))
    for item in view.kept:
        for reason in item.reasons:
            out.print(one_line(f"{item.name} is kept because {reason}"))
    for note in view.notes:
        out.print(one_line(f"note: {note}"))
    freed = f"; frees {format_bytes(view.freed_bytes)}" if view.goes else ""
    verb = "goes" if len(view.goes) == 1 else "go"
    out.print(f"{format_count(len(view.goes), 'version')} {verb} at the next run{freed}.")
