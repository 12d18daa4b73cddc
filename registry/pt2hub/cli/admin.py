"""`pt2hub admin`: what an operator does on the server's machine. Server code is imported inside commands only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit
from pt2hub.cli.words import NOTHING, when

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.domain.tokens import TokenInfo
    from pt2hub.server.config import ServerConfig


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    admin = typer.Typer(help="What an operator does on the server's machine.", no_args_is_help=True)
    panels.add(admin, token, None, "pt2hub admin token --name ci")
    panels.add(admin, tokens, None, "pt2hub admin tokens")
    panels.add(admin, revoke, None, "pt2hub admin revoke ci", "pt2hub admin revoke 3")
    panels.add(admin, reindex, None, "pt2hub admin reindex")
    app.add_typer(admin, name="admin", rich_help_panel=panels.OPERATING)


def server_config() -> ServerConfig:
    """The settings of the server on this machine."""
    from pt2hub.server.config import ServerConfig

    return ServerConfig.from_environ(os.environ)


def token(
    *,
    name: Annotated[str, typer.Option(help="What the token is called in lists.")] = "admin",
    as_json: AsJson = False,
) -> None:
    """Make a token; it is shown this once."""
    from pt2hub.server.admin import create_token

    made = create_token(server_config(), name=name)
    emit({"token": made, "name": name}, lambda out: out.print(made, markup=False), as_json=as_json)


def tokens(*, as_json: AsJson = False) -> None:
    """List the tokens: who may publish and move aliases."""
    from pt2hub.server.admin import list_tokens

    found = list_tokens(server_config())
    emit({"tokens": found}, lambda out: _print_tokens(out, found), as_json=as_json)


def revoke(
    token: Annotated[str, typer.Argument(metavar="NAME|ID", help="As `pt2hub admin tokens` lists it.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Revoke a token, at once and for good."""
    from pt2hub.server.admin import revoke_token

    revoked = revoke_token(server_config(), token)
    words = f"Token {revoked.id} ({revoked.name}) is revoked."
    emit(revoked, lambda out: out.print(words, markup=False), as_json=as_json)


def reindex(*, as_json: AsJson = False) -> None:
    """Rebuild the database's rows from the manifests in storage."""
    from pt2hub.server.admin import reindex as rebuild

    counts = rebuild(server_config())
    lines = "\n".join(f"{name}: {count}" for name, count in counts.items())
    emit(counts, lambda out: out.print(lines, markup=False), as_json=as_json)


def _print_tokens(out: Console, found: Sequence[TokenInfo]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (
            str(item.id),
            item.name,
            when(item.created_at),
            when(item.last_used_at),
            f"revoked {when(item.revoked_at)}" if item.revoked_at else NOTHING,
        )
        for item in found
    ]
    if rows:
        print_table(out, ("ID", "NAME", "CREATED", "LAST USED", "REVOKED"), rows)
    else:
        out.print("No tokens yet. Make one: pt2hub admin token --name ci", markup=False)
