"""`pt2hub config`: the client's settings, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, note
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from pt2hub.client.client_settings import ClientSetting

_Name = Annotated[str, typer.Argument(metavar="NAME", help="A setting, as `pt2hub config ls` lists it.")]


def register(app: typer.Typer) -> None:
    """Add the commands of settings to the app."""
    group = typer.Typer(
        help="Settings of the client, and where each comes from.",
        no_args_is_help=True,
        suggest_commands=False,
    )
    panels.add(group, ls, get, set_setting, unset)
    app.add_typer(group, name="config", rich_help_panel=panels.ACCESS)


@panels.command(None, "pt2hub config ls")
def ls() -> None:
    """List the settings of the client; the token is not shown."""
    from pt2hub.cli.tables import print_table
    from pt2hub.client.client_settings import list_settings

    found = list_settings()
    rows = [(item.name, item.value or "", item.origin) for item in found]
    emit({"settings": found}, lambda out: print_table(out, ("NAME", "VALUE", "FROM"), rows))


@panels.command(None, "pt2hub config get url")
def get(name: _Name) -> None:
    """Print the value of one setting."""
    found = _find(name)
    emit(found, lambda out: out.print(found.value or ""))


@panels.command(None, "pt2hub config set url https://pt2hub.example", name="set")
def set_setting(
    name: _Name, value: Annotated[str, typer.Argument(metavar="VALUE", help="The new value.")]
) -> None:
    """Store a setting in the settings file.

    A token is stored by `pt2hub login`. A new server's address removes the token, which belongs to the old server.
    """
    from pt2hub.client.config import ClientConfig, checked_url

    _require_stored(name)
    file, url = ClientConfig.from_environ().settings_file, checked_url(value, name)
    stored = file.read()
    moved = stored.get("url") != url
    file.write(**({"url": url} | ({"token": None} if moved else {})))
    if moved and "token" in stored:
        note("The token of the other server was removed: run pt2hub login.")
    document = {"name": name, "value": url, "settings": str(file.path)}
    emit(document, lambda out: out.print(f"{name} is {url} in {file.path}"))


@panels.command(None, "pt2hub config unset url")
def unset(name: _Name) -> None:
    """Remove a setting from the settings file.

    The token goes with the address, since it belongs to that server.
    """
    from pt2hub.client.config import ClientConfig

    _require_stored(name)
    file = ClientConfig.from_environ().settings_file
    file.write(url=None, token=None)
    document = {"name": name, "settings": str(file.path)}
    emit(document, lambda out: out.print(f"{name} is not set in {file.path}"))


def _find(name: str) -> ClientSetting:
    from pt2hub.client.client_settings import list_settings

    found = list_settings()
    for item in found:
        if item.name == name:
            return item
    raise InvalidInput(
        f"Unknown setting {name[:80]!r}",
        where="name",
        hint=f"Settings: {', '.join(item.name for item in found)}.",
    )


def _require_stored(name: str) -> None:
    found = _find(name)
    if found.name == "token":
        raise InvalidInput(
            "A token is checked before it is stored",
            where="name",
            hint="Run pt2hub login to store one, pt2hub logout to remove it.",
        )
    if found.name != "url":
        raise InvalidInput(
            f"{name} is not stored in the settings file",
            where="name",
            hint=f"Set the environment variable {found.variable}.",
        )
