"""The command of the one who runs workers. The worker takes this process's place, so that signals reach it."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson  # noqa: TC001  # typer reads the annotations when it runs
from pt2hub.extras import require


def register(app: typer.Typer) -> None:
    """Adds the command."""
    panels.add(
        app,
        worker,
        panels.OPERATING,
        "pt2hub worker",
        "pt2hub worker --target torch2.13-cpu-x86_64_v3 --concurrency 2",
    )


def worker(  # noqa: PLR0913  # each is an option
    *,
    target: Annotated[
        str | None, typer.Option(help="What to build for; auto is the best that this machine can.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Builds at a time; they never measure beside each other."),
    ] = None,
    toolchain: Annotated[
        str | None, typer.Option(help="aoti, or noop, which compiles nothing and tries the build plane.")
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option(
            help="sandbox, the default; process, where the server allows it; or auto, whichever can be had."
        ),
    ] = None,
    drain_seconds: Annotated[
        float | None, typer.Option(min=0, help="How long builds may go on after SIGTERM; then handed back.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether a worker of this machine is alive.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take builds from a server's queue until SIGTERM or Ctrl-C.

    PT2HUB_DATABASE_URL and PT2HUB_STORAGE name the server's database and storage.
    Without them those of the `pt2hub up` that runs on PT2HUB_HOME are taken.

    The options can also be set as PT2HUB_WORKER_TARGET, PT2HUB_CONCURRENCY,
    PT2HUB_TOOLCHAIN, PT2HUB_ISOLATION and PT2HUB_DRAIN_SECONDS.

    Models' code runs in a sandbox; what it needs, and is missing here, is said at
    the start. When a worker starts on a machine for the first time it compiles
    PyTorch's headers, once for all builds, which takes half a minute.

    The first signal drains: nothing more is taken, and what runs may go on for the
    drain's time, then it is handed back. A second signal hands it back at once.
    """
    torch_is_needed = not check and (toolchain or os.environ.get("PT2HUB_TOOLCHAIN")) != "noop"
    require("pt2hub worker", "server", *(["worker"] if torch_is_needed else []))
    given = {
        "target": target,
        "concurrency": concurrency,
        "toolchain": toolchain,
        "isolation": isolation,
        "drain-seconds": None if drain_seconds is None else f"{drain_seconds:f}",
    }
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    _become([*words, *(["--check"] if check else []), *(["--json"] if as_json else [])])


def _become(arguments: list[str]) -> NoReturn:
    from pt2hub.server.interrupts import hold

    sys.stdout.flush()
    hold()  # also while the new program starts
    os.execv(sys.executable, [sys.executable, "-m", "pt2hub_workers", *arguments])  # noqa: S606  # our own program, no shell
