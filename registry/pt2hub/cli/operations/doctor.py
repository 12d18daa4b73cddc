"""`pt2hub doctor`: checks what this machine's user needs, one line each, with the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.cli.operations.checkups import Checkup

_FAILED = 1


@panels.command(panels.ACCESS, "pt2hub doctor", "pt2hub doctor --json")
def doctor() -> None:
    """Check what pt2hub needs on this machine, and say how to mend it.

    The server, the token, the cache, the compiler, the GPU and the sandbox have one line each: ok, warning (something is missing that only some commands need) or failed, with the cure below it.
    The exit code is 1 if one failed.
    """
    from pt2hub.cli.operations.checkups import run_checkups

    found = run_checkups()
    emit({"checks": found}, lambda out: _print(out, found))
    if any(item.state == "failed" for item in found):
        raise typer.Exit(_FAILED)


def _print(out: Console, found: Sequence[Checkup]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [(item.name, item.state, [item.message, *([item.cure] if item.cure else [])]) for item in found]
    print_table(out, ("CHECK", "STATE", "FOUND"), rows)
