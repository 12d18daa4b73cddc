"""Command groups of `pt2hub --help`, and the registration of commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import click
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.models import ArgumentInfo

from pt2hub.cli.output import choose_json, choose_quiet

if TYPE_CHECKING:
    import typer

F = TypeVar("F", bound=Callable[..., None])

PUBLISHING = "Publishing"
READING = "Reading"
USING = "Using"
OPERATING = "Operating"
ACCESS = "Login and settings"


class Command(TyperCommand):
    """A command with `--json` and `--quiet`. Restores the help of arguments, which click 8.5 drops after typer 0.21 set it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            TyperOption(
                param_decls=["--json"],
                is_flag=True,
                expose_value=False,
                callback=lambda _ctx, _param, value: choose_json(value),
                help="Print the result as one JSON value on stdout.",
            )
        )
        self.params.append(
            TyperOption(
                param_decls=["--quiet", "-q"],
                is_flag=True,
                expose_value=False,
                callback=lambda _ctx, _param, value: choose_quiet(value),
                help="Show no progress; errors and the result are still printed.",
            )
        )
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True) if self.callback else {}
        for param in self.params:
            if isinstance(param, TyperArgument) and param.help is None:
                found = [item for item in get_args(hints[param.name]) if isinstance(item, ArgumentInfo)]
                param.help = found[0].help if found else None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, raising `click.Abort` on Ctrl-C where typer would only set an exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.Abort from None


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str | None
    panel: str | None
    epilog: str
    cls: type[Command]


_ENTRIES: dict[Callable[..., None], _Entry] = {}


def command(
    panel: str | None, *examples: str, name: str | None = None, cls: type[Command] = Command
) -> Callable[[F], F]:
    """Mark a function as a command, for `add` to register.

    Args:
        name: Name of the command, if it differs from the function's.
    """
    shown = "\n\n".join(f"$ {example}" for example in examples)
    title = "Example:" if len(examples) == 1 else "Examples:"

    def mark(function: F) -> F:
        _ENTRIES[function] = _Entry(name, panel, f"{title}\n\n{shown}", cls)
        return function

    return mark


def add(app: typer.Typer, *functions: Callable[..., None]) -> None:
    """Register commands with an app, in this order."""
    for function in functions:
        entry = _ENTRIES[function]
        app.command(entry.name, cls=entry.cls, rich_help_panel=entry.panel, epilog=entry.epilog)(function)
