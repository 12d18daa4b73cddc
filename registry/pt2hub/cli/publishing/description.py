"""`pt2hub describe`: shows or sets a model's description."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit
from pt2hub.errors import INVISIBLE_CHARACTERS

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.wire.responses import ModelView

_STDIN = "-"
_MAX_STDIN_BYTES = 1 << 20
"""Larger than any description; the server enforces the actual limit."""


@panels.command(
    panels.PUBLISHING,
    "pt2hub describe vision/resnet18",
    'pt2hub describe vision/resnet18 "Labels product pictures. Ask ada."',
    "pt2hub describe vision/resnet18 -",
)
def describe(
    model: Annotated[str, typer.Argument(help="team/name.")],
    text: Annotated[
        str | None,
        typer.Argument(
            help="The description, at most 2,000 characters; - reads it from stdin, '' removes it."
        ),
    ] = None,
) -> None:
    """Show or set a model's description.

    The description is plain text with line breaks. Setting it changes no version.
    """
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    name = model_name(model)
    given = _read_stdin() if text == _STDIN else text
    with Client() as client:
        view = client.models.get(name) if given is None else client.models.describe(name, given)
    emit(view, lambda out: _print(out, view, was_set=given is not None))


def _read_stdin() -> str:
    from pt2hub.errors import InvalidInput

    try:
        return sys.stdin.buffer.read(_MAX_STDIN_BYTES).decode()
    except UnicodeDecodeError as exc:
        raise InvalidInput(
            f"The description is not UTF-8: {exc.reason} at byte {exc.start}", where="stdin"
        ) from exc


def _print(out: Console, view: ModelView, *, was_set: bool) -> None:
    if view.description:
        out.print(f"The description of {view.name} is now:" if was_set else f"{view.name}:")
        for line in view.description.translate(INVISIBLE_CHARACTERS).splitlines():
            out.print(f"  {line}".rstrip())
        return
    out.print(f"{view.name} {'no longer has a' if was_set else 'has no'} description.")
    out.print(f'  To set one: pt2hub describe {view.name} "What it does, and who maintains it"')
