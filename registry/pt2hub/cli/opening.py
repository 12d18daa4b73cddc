"""`pt2hub open`: a page of the server, which then says what runs on this machine."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""One of them is set where a Linux machine can show a browser; else a browser for terminals would take this one."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    panels.add(
        app,
        open_page,
        panels.READING,
        "pt2hub open",
        "pt2hub open vision/resnet18@prod",
        "pt2hub open 688d2e6fd6eb1e11 --no-browser",
        name="open",
    )


def open_page(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="ID|MODEL[@REF]",
            help="A build, a model, a version or an artifact; the front page without it.",
        ),
    ] = None,
    *,
    browser: Annotated[bool, typer.Option(help="Open a browser, where this machine has one.")] = True,
    as_json: AsJson = False,
) -> None:
    """Open a web page of the server, in a browser where there is one.

    The address tells the server what this machine is: its name, CPU, GPU, torch and C library.
    The pages then say which artifacts run here, and the browser keeps it for a year.
    """
    from pt2hub.cli.references import NO_BUILD, hinted
    from pt2hub.client.client import Client
    from pt2hub.client.opening import address, page_of, this_machine

    with Client() as client, hinted(NO_BUILD):
        page = address(client.config.url, page_of(client, what), this_machine())
    opened = browser and _has_display() and _opened(page)
    emit({"url": page, "opened": opened}, lambda out: out.print(page, markup=False), as_json=as_json)


def _has_display() -> bool:
    return sys.platform != "linux" or any(os.environ.get(name) for name in _DISPLAYS)


def _opened(page: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(page)
    except webbrowser.Error:
        return False
