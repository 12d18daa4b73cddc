"""Options of commands that pull: a lock file, and what holds while the server is away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pt2hub.errors import BadConfiguration


def _duration(text: str) -> float:
    from pt2hub.client.availability import parse_duration

    try:
        return parse_duration(text, "--max-age")
    except BadConfiguration as exc:
        raise typer.BadParameter(f"{exc.message}. {exc.hint}") from exc


LockPath = Annotated[
    Path | None,
    typer.Option("--lock", metavar="FILE", help="Take what this lock file pins the reference to."),
]
Offline = Annotated[
    bool, typer.Option("--offline", help="Ask no server: use the cache and what was last known.")
]
MaxAge = Annotated[
    float | None,
    typer.Option(
        "--max-age",
        parser=_duration,
        metavar="DURATION",
        help="How old what was last known may be if the server does not answer, such as 12h; by default 7d "
        "(PT2HUB_MAX_AGE).",
    ),
]
