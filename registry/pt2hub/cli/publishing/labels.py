"""`pt2hub label`: labels of models and versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, note, one_line
from pt2hub.cli.publishing.label_arguments import parse_pairs
from pt2hub.domain.labels import note_lookalikes
from pt2hub.rendering.times import NOTHING, format_local_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.responses import LabelView

_Subject = Annotated[
    str,
    typer.Argument(metavar="MODEL[@REF]", help="A version: team/name@3; without @, the model itself."),
]


def register(app: typer.Typer) -> None:
    """Add the group to the app."""
    group = typer.Typer(help="Labels of versions and models.", no_args_is_help=True, suggest_commands=False)
    panels.add(group, ls, set_labels, rm)
    app.add_typer(group, name="label", rich_help_panel=panels.PUBLISHING)


@panels.command(None, "pt2hub label ls vision/resnet18@3", "pt2hub label ls vision/resnet18")
def ls(subject: _Subject) -> None:
    """List the labels of a version, or of a model itself."""
    from pt2hub.client.client import Client

    with Client() as client:
        labels = _read(client, subject)
    emit({"labels": labels}, lambda out: _print(out, labels))


@panels.command(
    None,
    "pt2hub label set vision/resnet18@3 stage=candidate",
    "pt2hub label set vision/resnet18 owner=search license=Apache-2.0",
    "pt2hub label set vision/resnet18@3 stage=approved --expect stage=candidate",
    name="set",
)
def set_labels(
    subject: _Subject,
    labels: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Labels to set.")],
    *,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Change nothing unless the label has this value now; KEY= if it must be missing. Can be repeated.",
        ),
    ] = None,
) -> None:
    """Set labels; others stay.

    Labels that state where a version comes from (git.sha, git.repository, git.branch, run, data) are set once.
    """
    from pt2hub.cli.references import subject_of
    from pt2hub.client.client import Client

    wanted, expected = parse_pairs(labels), parse_pairs(expect or (), what="condition")
    with Client() as client:
        found = client.labels.change(
            *subject_of(client, subject),
            set=wanted,
            expected={key: value or None for key, value in expected.items()},
        )
    note(*note_lookalikes(wanted))
    emit({"labels": found}, lambda out: _print(out, found))


@panels.command(None, "pt2hub label rm vision/resnet18@3 stage")
def rm(
    subject: _Subject,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Labels to remove.")],
) -> None:
    """Remove labels; a note names missing ones."""
    from pt2hub.cli.references import subject_of
    from pt2hub.client.client import Client

    if wrong := next((key for key in keys if "=" in key), None):
        raise click.UsageError(f"Give the key alone: {wrong.partition('=')[0][:80]}")
    with Client() as client:
        before = {item.key for item in _read(client, subject)}
        found = client.labels.change(*subject_of(client, subject), remove=keys)
    note(*(f"{subject} has no label {key}: nothing to remove." for key in keys if key not in before))
    emit({"labels": found}, lambda out: _print(out, found))


def _read(client: Client, text: str) -> tuple[LabelView, ...]:
    from pt2hub.cli.references import subject_of

    model, number = subject_of(client, text)
    return client.labels.of_model(model) if number is None else client.versions.get(model, number).labels


def _print(out: Console, labels: Sequence[LabelView]) -> None:
    from pt2hub.cli.tables import print_table

    with_origin = any(item.at for item in labels)  # a model's own come without from the records of a bundle
    headings = ("KEY", "VALUE", "BY", "SET") if with_origin else ("KEY", "VALUE")
    rows = [
        (item.key, one_line(item.value), str(item.by or NOTHING), format_local_time(item.at or None))[
            : len(headings)
        ]
        for item in labels
    ]
    print_table(out, headings, rows, empty="No labels.")
