"""`pt2hub file`: attached files of versions."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, is_json, shows_progress
from pt2hub.cli.references import Reference, number_of
from pt2hub.domain.attached_files.kinds import DOCUMENTATION_KINDS
from pt2hub.rendering.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.wire.files import FileList, FileView

_STDOUT = Path("-")
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the file, such as README.md.")]


def register(app: typer.Typer) -> None:
    """Add the group to the app."""
    group = typer.Typer(
        help="Attached files of versions: model card, licence, examples, tokenizer.",
        no_args_is_help=True,
        suggest_commands=False,
    )
    panels.add(group, ls, get, add, rm)
    app.add_typer(group, name="file", rich_help_panel=panels.PUBLISHING)


@panels.command(None, "pt2hub file ls vision/resnet18@3")
def ls(reference: Reference) -> None:
    """List the attached files of a version."""
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.files.list(*number_of(client, reference))
    emit(found, lambda out: print_files(out, found.files))


@panels.command(
    None,
    "pt2hub file get vision/resnet18@3 README.md",
    "pt2hub file get vision/resnet18@3 README.md -o card.md",
    "pt2hub file get vision/resnet18@3 labels.txt -o -",
)
def get(
    reference: Reference,
    name: _Name,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Where to write it, - for stdout; as a new file in this directory if omitted."
        ),
    ] = None,
) -> None:
    """Download an attached file.

    Documentation is as it is now; `pt2hub pull` brings what the version was published with.
    """
    from pt2hub.client.client import Client
    from pt2hub.client.exports.destination import taken
    from pt2hub.domain.attached_files.names import check_name

    to_stdout = out == _STDOUT
    if to_stdout and is_json():
        raise click.UsageError("-o - and --json both write to stdout; choose one.")
    wanted = out or Path(check_name(name))
    if out is None and wanted.exists():
        raise taken(wanted)
    with Client() as client:
        model, number = number_of(client, reference)
        path = client.files.get(model, number, name, None if to_stdout else wanted, progress=shows_progress())
    if to_stdout:
        _write_to_stdout(path)
        return
    emit({"name": name, "path": str(path)}, lambda console: console.print(str(path)))


@panels.command(
    None,
    "pt2hub file add vision/resnet18@3 README.md",
    "pt2hub file add vision/resnet18@3 terms.txt --kind license",
)
def add(
    reference: Reference,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Path of the file.")],
    *,
    name: Annotated[str | None, typer.Option(help="Its name in the version, if it differs.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(DOCUMENTATION_KINDS)}; what the name suggests if omitted."),
    ] = None,
    media_type: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE/SUBTYPE", help="Media type; what the name suggests if omitted."),
    ] = None,
) -> None:
    """Add documentation to a version, or replace it.

    Digests and lock files keep what they pin. Files that programs need (tokenizer, labels, preprocessing, calibration) are
    given at the publication: `pt2hub publish --file`.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        model, number = number_of(client, reference)
        found = client.files.add(
            model, number, path, name=name, kind=kind, media_type=media_type, progress=shows_progress()
        )
    emit(found, lambda out: _print_changed(out, f"{model}@{number}", found))


@panels.command(None, "pt2hub file rm vision/resnet18@3 README.md")
def rm(reference: Reference, name: _Name) -> None:
    """Remove documentation from a version; what is pinned still has it."""
    from pt2hub.client.client import Client

    with Client() as client:
        model, number = number_of(client, reference)
        found = client.files.remove(model, number, name)
    emit(found, lambda out: _print_changed(out, f"{model}@{number}", found))


def _write_to_stdout(path: Path) -> None:
    sys.stdout.flush()
    with path.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def print_files(out: Console, files: Sequence[FileView]) -> None:
    """Print a table of attached files."""
    from pt2hub.cli.tables import print_table

    rows = [
        [
            item.name,
            item.kind,
            item.media_type,
            format_bytes(item.size),
            item.digest,
            "yes" if item.pinned else "no",
        ]
        for item in files
    ]
    headings = ["FILE", "KIND", "TYPE", "SIZE", "DIGEST", "PINNED"]
    print_table(out, headings, rows, empty="No files are attached.")


def _print_changed(out: Console, version: str, found: FileList) -> None:
    out.print(f"Files of {version}:", style="bold")
    print_files(out, found.files)
