"""Commands of the one who runs the server: up, admin, demo. Server code is imported inside them only."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli.output import AsJson, emit, print_json

if TYPE_CHECKING:
    from pt2hub.server.config import ServerConfig


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(up)
    app.command()(demo)
    admin = typer.Typer(help="What an operator does on the server's machine.", no_args_is_help=True)
    admin.command()(token)
    admin.command()(reindex)
    app.add_typer(admin, name="admin")


def up(
    *,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the API; 0 takes any free one.")
    ] = None,
    worker: Annotated[bool, typer.Option(help="Also run a worker for this machine.")] = True,
    as_json: AsJson = False,
) -> None:
    """Run database, API and one worker on this machine until Ctrl-C."""
    from pt2hub.server.up import UpOptions, run

    config = _config()
    options = UpOptions(worker=worker)
    raise typer.Exit(
        run(
            config if port is None else replace(config, port=port),
            replace(options, announce=print_json) if as_json else options,
        )
    )


def demo(*, as_json: AsJson = False) -> None:
    """Publish, prove, pull, load and time resnet18 in a home of its own."""
    from pt2hub.cli.demo import run

    figures = run(lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True))
    lines = "\n".join(f"{name:<30} {value}" for name, value in figures.items() if not isinstance(value, dict))
    emit(figures, lambda console: console.print(f"\n{lines}", markup=False), as_json=as_json)


def token(
    *,
    name: Annotated[str, typer.Option(help="What the token is called in lists.")] = "admin",
    as_json: AsJson = False,
) -> None:
    """Make a token; it is shown this once."""
    from pt2hub.server.admin import create_token

    made = create_token(_config(), name=name)
    emit({"token": made, "name": name}, lambda console: console.print(made), as_json=as_json)


def reindex(*, as_json: AsJson = False) -> None:
    """Rebuild the database's rows about artifacts from the manifests in storage."""
    from pt2hub.server.admin import reindex as rebuild

    counts = rebuild(_config())
    lines = "\n".join(f"{name}: {count}" for name, count in counts.items())
    emit(counts, lambda console: console.print(lines), as_json=as_json)


def _config() -> ServerConfig:
    from pt2hub.server.config import ServerConfig

    return ServerConfig.from_environ(os.environ)
