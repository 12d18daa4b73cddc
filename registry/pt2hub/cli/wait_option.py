"""The option `--wait` with a value that may be left out: `--wait`, `--wait measured`, `--wait=measured`.

Click takes the next word for the value of such an option whatever it is, so that `publish --wait spec.yaml` would wait for
a file. Only the two values are taken here.
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
    """What a command waits for."""

    READY = "ready"
    MEASURED = "measured"


_VALUES = frozenset(Until)
Wait = Annotated[
    Until | None,
    typer.Option(
        *_NAMES,
        help="Follow the builds until the version is ready, or until its artifacts are measured besides; ends with 1 "
        "unless everything succeeded. Without a value it is `ready`.",
        show_default=False,
    ),
]


class WaitCommand(Command):
    """A command with this option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give the option its value before click reads the words."""
        return super().parse_args(ctx, list(with_values(args)))


def with_values(args: list[str]) -> Iterator[str]:
    """Yield the words of a command line, each `--wait` with its value behind an equals sign.

    Args:
        args: The words as the shell gives them.
    """
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
