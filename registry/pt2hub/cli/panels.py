"""The groups of `pt2hub --help`, and how a command joins one."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import click
from typer.core import TyperArgument, TyperCommand
from typer.models import ArgumentInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

PUBLISHING = "Publishing"
READING = "Reading"
USING = "Using"
OPERATING = "Operating"


class Command(TyperCommand):
    """A command that gives its arguments their help back: click 8.5 drops what typer 0.21 set before."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # typer's own
        super().__init__(*args, **kwargs)
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True) if self.callback else {}
        for param in self.params:
            if isinstance(param, TyperArgument) and param.help is None:
                found = [item for item in get_args(hints[param.name]) if isinstance(item, ArgumentInfo)]
                param.help = found[0].help if found else None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  # typer's own
        """Runs the command; Ctrl-C stays recognisable, which typer turns into a mere exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.Abort from None


def add(
    app: typer.Typer,
    command: Callable[..., None],
    panel: str | None,
    *examples: str,
    name: str | None = None,
    cls: type[Command] = Command,
) -> None:
    """Adds a command.

    Args:
        app: Where to.
        command: What runs; its docstring is the help.
        panel: The group it stands in.
        *examples: Whole command lines, shown below the help.
        name: Its name, where Python has another use for it.
        cls: What parses its command line.
    """
    shown = "\n\n".join(f"$ {example}" for example in examples)
    title = "Example:" if len(examples) == 1 else "Examples:"
    app.command(name, cls=cls, rich_help_panel=panel, epilog=f"{title}\n\n{shown}")(command)
