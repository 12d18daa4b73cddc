"""The `--wait` option, with an optional value: `--wait`, `--wait measured`, `--wait=measured`.

Click would take any next word as the value, such as the spec in `publish --wait spec.yaml`. Here only the two known values
count.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli.panels import Command

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click

_NAMES = ("--wait", "-w")


class Until(StrEnum):
    """The event that a command waits for."""

    READY = "ready"
    MEASURED = "measured"


_VALUES = frozenset(Until)
Wait = Annotated[
    Until | None,
    typer.Option(
        *_NAMES,
        help="Wait until the version is ready (default), or until its artifacts are also measured. The exit code is 1 "
        "unless everything succeeded.",
        show_default=False,
    ),
]


class WaitCommand(Command):
    """A command with the `--wait` option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give the option its value before click parses the arguments."""
        return super().parse_args(ctx, list(with_values(args)))


def with_values(args: list[str]) -> Iterator[str]:
    """Yield the arguments of a command line, each `--wait` joined to its value by an equals sign."""
    end = args.index("--") if "--" in args else len(args)
    is_open = False
    for word in args[:end]:
        is_value = is_open and word in _VALUES
        if is_open:
            yield f"--wait={word if is_value else Until.READY}"
        is_open = word in _NAMES
        if not is_open and not is_value:
            yield word
    if is_open:
        yield f"--wait={Until.READY}"
    yield from args[end:]
