"""Commands of the one who runs the server: up, api, demo. Server code is imported inside them only."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import admin, output, panels
from pt2hub.cli.output import AsJson, complain, emit, print_json
from pt2hub.errors import Pt2hubError
from pt2hub.extras import require

if TYPE_CHECKING:
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.up.running import Started, UpOptions


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    panels.add(app, up, panels.OPERATING, "pt2hub up", "pt2hub up --port 8500 --no-worker")
    panels.add(app, api, panels.OPERATING, "pt2hub api", "pt2hub api --host 0.0.0.0 --processes 4")
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
    require("pt2hub up", "server")
    if worker:
        require("A worker", "worker", otherwise=", or start without one: pt2hub up --no-worker")
    from pt2hub.server.up.running import UpOptions, run

    config = admin.server_config()
    options = UpOptions(worker=worker)
    config = config if port is None else replace(config, port=port)
    raise typer.Exit(_run_for_programs(config, options) if as_json else run(config, options))


def _run_for_programs(config: ServerConfig, options: UpOptions) -> int:
    """Prints one JSON value: what runs, or why it did not start. What goes wrong later goes to standard error."""
    from pt2hub.server.up.running import run

    announced = False

    def announce(started: Started) -> None:
        nonlocal announced
        print_json(started)
        announced = True

    try:
        return run(config, replace(options, announce=announce))
    except Pt2hubError as exc:
        if not announced:
            raise
        complain(exc, as_json=False)
        return 1


def api(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, max=64, help="Processes that answer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the API alone, on your own PostgreSQL and storage.

    For containers and service managers: it stays in the foreground, logs JSON to standard error, keeps nothing on
    this machine, and answers what it was asked before SIGTERM stops it. Upgrade the database first: pt2hub admin
    migrate.
    """
    require("pt2hub api", "server")
    from pt2hub.server.up.foreground import run_api

    given = {"host": host, "port": port, "api_processes": processes}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    announce = print_json if as_json else None
    raise typer.Exit(run_api(replace(admin.server_config(), **chosen), announce=announce))


def demo(*, as_json: AsJson = False) -> None:
    """Publish, prove, pull, load and time resnet18 in its own home."""
    require("pt2hub demo", "server", "worker")
    from pt2hub.cli.demo import run
    from pt2hub.server.interrupts import Interrupted

    try:
        figures = run(lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True))
    except Interrupted as exc:
        raise typer.Exit(output.interrupted(exc.number, as_json=as_json)) from None
    lines = "\n".join(f"{name:<30} {value}" for name, value in figures.items() if not isinstance(value, dict))
    emit(figures, lambda console: console.print(f"\n{lines}", markup=False), as_json=as_json)
