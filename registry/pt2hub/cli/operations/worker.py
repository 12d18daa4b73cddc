"""`pt2hub worker`: replaces this process with a worker, so that signals reach it."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from pt2hub.cli import panels
from pt2hub.cli.operations.environment_check import note_unknown_settings
from pt2hub.cli.output import is_json
from pt2hub.extras import require


@panels.command(
    panels.OPERATING, "pt2hub worker", "pt2hub worker --target torch2.13-cpu-x86_64_v3 --concurrency 2"
)
def worker(  # each is an option
    *,
    target: Annotated[
        str | None, typer.Option(help="The target to build for; auto is the best one for this machine.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Maximum number of builds at a time; measurements never overlap."),
    ] = None,
    toolchain: Annotated[
        str | None,
        typer.Option(help="aoti, or noop, which compiles nothing and serves to test an installation."),
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option(
            help="sandbox (default); process, if the server allows it; or auto, the strongest available."
        ),
    ] = None,
    drain_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="How long builds may continue after SIGTERM before they are queued again."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check whether a worker on this machine is alive.")
    ] = False,
) -> None:
    """Run builds from a server's queue until SIGTERM or Ctrl-C.

    PT2HUB_DATABASE_URL and PT2HUB_STORAGE name the server's database and storage. Without
    them, the worker joins the `pt2hub up` that runs on PT2HUB_HOME.

    The options can also be set as PT2HUB_WORKER_TARGET, PT2HUB_CONCURRENCY,
    PT2HUB_TOOLCHAIN, PT2HUB_ISOLATION and PT2HUB_DRAIN_SECONDS.

    Models' code runs in a sandbox; at startup the worker reports anything that the sandbox
    needs and this machine lacks. On its first start on a machine, the worker compiles
    PyTorch's headers for all builds, which takes half a minute.

    The first signal drains the worker: it takes no more builds, and running ones may
    continue for the drain time before they are queued again. A second signal queues them
    again at once.
    """
    if not check:
        note_unknown_settings(os.environ)
    needs_torch = not check and (toolchain or os.environ.get("PT2HUB_TOOLCHAIN")) != "noop"
    require("pt2hub worker", "server", *(["worker"] if needs_torch else []))
    given = {
        "target": target,
        "concurrency": concurrency,
        "toolchain": toolchain,
        "isolation": isolation,
        "drain-seconds": None if drain_seconds is None else f"{drain_seconds:f}",
    }
    arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
    _exec_worker([*arguments, *(["--check"] if check else []), *(["--json"] if is_json() else [])])


def _exec_worker(arguments: list[str]) -> NoReturn:
    from pt2hub.system.interrupts import hold

    sys.stdout.flush()
    hold()  # also holds signals back while the new program starts
    os.execv(sys.executable, [sys.executable, "-m", "pt2hub_workers", *arguments])  # noqa: S606  # our own program, no shell
