"""`pt2hub open`: opens a web page of the server."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from pt2hub.client.client import Client

_BUILD = re.compile(r"[0-9a-f]{16}")
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""On Linux, one of these is set if a graphical browser can be shown; without the check a text browser could take over the terminal."""


@panels.command(
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
            help="A build, model, version or artifact; the front page if omitted.",
        ),
    ] = None,
    *,
    browser: Annotated[bool, typer.Option(help="Open a browser if this machine has one.")] = True,
) -> None:
    """Open a web page of the server, and print its address."""
    from pt2hub.cli.references import NO_BUILD, add_hint
    from pt2hub.client.client import Client

    with Client() as client, add_hint(NO_BUILD):
        page = client.config.url + _page_of(client, what)
    opened = browser and _has_display() and _open_browser(page)
    emit({"url": page, "opened": opened}, lambda out: out.print(page))


def _has_display() -> bool:
    return sys.platform != "linux" or any(os.environ.get(name) for name in _DISPLAYS)


def _open_browser(page: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(page)
    except webbrowser.Error:
        return False


def _page_of(client: Client, what: str | None) -> str:
    """Return the path of the page of an existing build, model, version or artifact."""
    from pt2hub.domain.names import Reference

    if what is None:
        return "/"
    if "/" not in what:
        return f"/builds/{client.builds.get(_build_id(what)).id}"
    wanted = Reference.parse(what)
    if wanted.digest_start:
        (artifact,) = client.artifacts.resolve(what).artifacts
        return f"/artifacts/{artifact.digest}"
    page = f"/models/{client.models.get(wanted.model).name}"
    if wanted.number:
        return f"{page}/versions/{client.versions.get(wanted.model, wanted.number).number}"
    return f"{page}/versions/{client.artifacts.resolve(what).number}" if wanted.alias else page


def _build_id(what: str) -> str:
    if not _BUILD.fullmatch(what):
        raise InvalidInput(
            f"{what[:80]!r} is neither a build id nor a model name",
            where="ID|MODEL[@REF]",
            hint="Write a build id such as 688d2e6fd6eb1e11 (to list builds: pt2hub builds), or a model name such as "
            "vision/resnet18 (to list models: pt2hub models).",
        )
    return what
