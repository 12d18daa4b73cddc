"""`pt2hub describe`: what a model is, in words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit
from pt2hub.errors import UNSEEN

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.wire.shapes import ModelView

_STDIN = "-"
_MOST_BYTES = 1 << 20
"""More than any description has; the server says how long one may be."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    panels.add(
        app,
        describe,
        panels.PUBLISHING,
        "pt2hub describe vision/resnet18",
        'pt2hub describe vision/resnet18 "Labels product pictures. Ask ada."',
        "pt2hub describe vision/resnet18 -",
    )


def describe(
    model: Annotated[str, typer.Argument(help="team/name.")],
    text: Annotated[
        str | None,
        typer.Argument(help="What it is, at most 2,000 characters; - reads it from stdin, '' takes it away."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show or set what a model is, in words for people.

    The description is plain text and keeps its line breaks. It is the model's: no version changes by it.
    """
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    name = model_name(model)
    given = _typed() if text == _STDIN else text
    with Client() as client:
        view = client.model(name) if given is None else client.describe(name, given)
    emit(view, lambda out: _print(out, view, was_set=given is not None), as_json=as_json)


def _typed() -> str:
    from pt2hub.errors import InvalidInput

    try:
        return sys.stdin.buffer.read(_MOST_BYTES).decode()
    except UnicodeDecodeError as exc:
        raise InvalidInput(
            f"The description is not UTF-8: {exc.reason} at byte {exc.start}", where="stdin"
        ) from exc


def _print(out: Console, view: ModelView, *, was_set: bool) -> None:
    if view.description:
        out.print(f"The description of {view.name} is now:" if was_set else f"{view.name}:", markup=False)
        for line in view.description.translate(UNSEEN).splitlines():
            out.print(f"  {line}".rstrip(), markup=False)
        return
    out.print(f"{view.name} has no description{' any more' if was_set else ''}.", markup=False)
    out.print(f'  Give it one: pt2hub describe {view.name} "What it is, and whom to ask"', markup=False)
