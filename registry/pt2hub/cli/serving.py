"""Commands of the one who runs the server: up, demo. Server code is imported inside them only."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from pt2hub.cli import admin, panels
from pt2hub.cli.output import AsJson, emit, print_json


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    panels.add(app, up, panels.OPERATING, "pt2hub up", "pt2hub up --port 8500 --no-worker")
    panels.add(app, demo, panels.OPERATING, "pt2hub demo")
    admin.register(app)


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

    config = admin.server_config()
    options = UpOptions(worker=worker)
    raise typer.Exit(
        run(
            config if port is None else replace(config, port=port),
            replace(options, announce=print_json) if as_json else options,
        )
    )


def demo(*, as_json: AsJson = False) -> None:
    """Publish, prove, pull, load and time resnet18 in its own home."""
    from pt2hub.cli.demo import run

    figures = run(lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True))
    lines = "\n".join(f"{name:<30} {value}" for name, value in figures.items() if not isinstance(value, dict))
    emit(figures, lambda console: console.print(f"\n{lines}", markup=False), as_json=as_json)
