"""`pt2hub lineage`: what versions are derived from, and what is derived from them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit
from pt2hub.cli.references import Reference, number_of
from pt2hub.domain.lineage import DEFAULT_DEPTH, MAX_DEPTH
from pt2hub.errors import Pt2hubError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from pt2hub.wire.lineage import DerivationView, LineageView

_FIELD = re.compile(r"add(?:\[(\d{1,3})\])?")
_Version = Annotated[str, typer.Argument(metavar="MODEL@REF", help="A version: team/name@3.")]


def register(app: typer.Typer) -> None:
    """Add the group to the app."""
    group = typer.Typer(
        help="What versions are derived from, and what is derived from them.",
        no_args_is_help=True,
        suggest_commands=False,
    )
    panels.add(group, show, add, rm)
    app.add_typer(group, name="lineage", rich_help_panel=panels.PUBLISHING)


@panels.command(
    None, "pt2hub lineage show vision/resnet18@3", "pt2hub lineage show vision/resnet18@prod --depth 2 --json"
)
def show(
    reference: Reference,
    *,
    depth: Annotated[
        int, typer.Option(min=1, max=MAX_DEPTH, help="Generations in each direction.")
    ] = DEFAULT_DEPTH,
) -> None:
    """Show what a version is derived from, and what is derived from it."""
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.lineage.get(*number_of(client, reference), depth=depth)
    emit(found, lambda out: _print(out, found))


@panels.command(
    None,
    "pt2hub lineage add vision/resnet18@4 fine-tuned:vision/resnet18@3",
    "pt2hub lineage add vision/resnet18@1 quantized:hf:team/resnet18@revision",
)
def add(
    version: _Version,
    derivations: Annotated[
        list[str],
        typer.Argument(
            metavar="RELATION:PARENT...",
            help="retrained, fine-tuned, quantized, distilled or other, and a version or an external reference.",
        ),
    ],
) -> None:
    """Record what a version is derived from; other parents stay."""
    from pt2hub.client.client import Client

    with Client() as client, _name_argument(derivations):
        found = client.lineage.change(*number_of(client, version), add=derivations)
    emit({"derived_from": found}, lambda out: _print_parents(out, found))


@panels.command(None, "pt2hub lineage rm vision/resnet18@4 vision/resnet18@3")
def rm(
    version: _Version,
    parents: Annotated[list[str], typer.Argument(metavar="PARENT...", help="Parents to remove.")],
) -> None:
    """Remove parents of a version; missing ones are ignored."""
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.lineage.change(*number_of(client, version), remove=parents)
    emit({"derived_from": found}, lambda out: _print_parents(out, found))


@contextmanager
def _name_argument(derivations: Sequence[str]) -> Iterator[None]:
    """Name the argument in errors about one of the derivations, in place of the field of the request."""
    try:
        yield
    except Pt2hubError as exc:
        if (found := _FIELD.fullmatch(exc.where or "")) and int(found[1] or 0) < len(derivations):
            exc.where = (
                f"RELATION:PARENT {derivations[int(found[1])][:80]!a}" if found[1] else "RELATION:PARENT"
            )
        raise


def _print(out: Console, found: LineageView) -> None:
    from pt2hub.cli.tables import in_colour
    from pt2hub.rendering.lineage import ancestor_tree, descendant_tree, tree_lines

    name = f"{found.model}@{found.number}"
    out.print(in_colour(name), style="bold")
    for title, nodes in (
        ("derived from", ancestor_tree(name, found.ancestors)),
        ("derived from it", descendant_tree(name, found.descendants)),
    ):
        out.print(f"{title}:" if nodes else f"{title}: nothing recorded")
        out.print(*tree_lines(nodes), sep="\n", end="\n" if nodes else "", markup=False, highlight=False)
    if found.truncated:
        out.print("There is more: pt2hub lineage show with another version of the list, or a larger --depth.")


def _print_parents(out: Console, found: tuple[DerivationView, ...]) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.lineage import describe_derivation
    from pt2hub.rendering.times import NOTHING, format_local_time

    rows = [
        (item.parent, describe_derivation(item), str(item.by or NOTHING), format_local_time(item.at or None))
        for item in found
    ]
    print_table(out, ("PARENT", "RELATION", "BY", "RECORDED"), rows, empty="No parents.")
