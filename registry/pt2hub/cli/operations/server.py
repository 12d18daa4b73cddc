"""`pt2hub up`, `pt2hub api` and `pt2hub demo`. They import server code only when they run."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import output, panels
from pt2hub.cli.operations import admin
from pt2hub.cli.operations.environment_check import note_unknown_settings
from pt2hub.cli.output import complain, emit, is_json, print_json
from pt2hub.errors import Pt2hubError
from pt2hub.extras import require

if TYPE_CHECKING:
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.up.supervisor import Started, UpOptions


@panels.command(panels.OPERATING, "pt2hub up", "pt2hub up --port 8500 --no-worker")
def up(
    *,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the API; 0 for any free port.")
    ] = None,
    worker: Annotated[bool, typer.Option(help="Also run a worker for this machine.")] = True,
) -> None:
    """Run database, API and one worker here until Ctrl-C."""
    require("pt2hub up", "server")
    if worker:
        require("A worker", "worker", otherwise=", or start without one: pt2hub up --no-worker")
    from pt2hub.server.up.supervisor import UpOptions, run

    note_unknown_settings(os.environ)
    config = admin.server_config()
    options = UpOptions(worker=worker)
    config = config if port is None else replace(config, port=port)
    raise typer.Exit(_run_for_programs(config, options) if is_json() else run(config, options))


def _run_for_programs(config: ServerConfig, options: UpOptions) -> int:
    """Run with one JSON value on stdout: what runs, or why it did not start. Later errors go to stderr."""
    from pt2hub.server.up.supervisor import run

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
        complain(exc, as_text=True)
        return 1


@panels.command(panels.OPERATING, "pt2hub api", "pt2hub api --host 0.0.0.0 --processes 4")
def api(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the API; 0 for any free port.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, max=64, help="Number of API processes.")] = None,
) -> None:
    """Run only the API, on your own PostgreSQL and storage.

    For containers and service managers: it runs in the foreground, logs JSON to stderr, stores nothing on this
    machine, and finishes open requests before SIGTERM stops it. Upgrade the database first, with
    pt2hub admin migrate.
    """
    require("pt2hub api", "server")
    from pt2hub.server.up.foreground import run_api

    note_unknown_settings(os.environ)
    given = {"host": host, "port": port, "api_processes": processes}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    announce = print_json if is_json() else None
    raise typer.Exit(run_api(replace(admin.server_config(), **chosen), announce=announce))


@panels.command(panels.OPERATING, "pt2hub demo")
def demo() -> None:
    """Publish, pull and measure resnet18 in a temporary home."""
    require("pt2hub demo", "server", "worker")
    from pt2hub.cli.operations.demo import run
    from pt2hub.system.interrupts import Interrupted

    try:
        figures = run(lambda line: print(line, file=sys.stderr if is_json() else sys.stdout, flush=True))
    except Interrupted as exc:
        raise typer.Exit(output.report_interrupt(exc.number)) from None
    lines = "\n".join(f"{name:<30} {value}" for name, value in figures.items() if not isinstance(value, dict))
    emit(figures, lambda console: console.print(f"\n{lines}"))
