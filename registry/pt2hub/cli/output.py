"""How commands speak: text for people, one JSON value on stdout for programs, errors without tracebacks."""

from __future__ import annotations

import json
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.domain.codec import encode
from pt2hub.errors import InternalError, Pt2hubError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else on stdout.")]
"""The option every command has."""


INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and SIGINT, as shells count."""


def emit(value: Any, human: Callable[[Console], None], *, as_json: bool) -> None:  # noqa: ANN401  # any dataclass or JSON value
    """Prints a result.

    Args:
        value: The result, for programs.
        human: Prints it for people.
        as_json: Whom it is for.
    """
    if as_json:
        print_json(value)
    else:
        human(console())


def print_json(value: Any) -> None:  # noqa: ANN401  # any dataclass or JSON value
    """Prints one JSON value on stdout, on one line, so that a reader knows where it ends."""
    print(json.dumps(encode(value), ensure_ascii=False, default=str), flush=True)


def console(*, stderr: bool = False) -> Console:
    """Where text goes; without colours, wrapping or movement where it is no terminal."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, soft_wrap=True)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, soft_wrap=True, width=200)


def note(*lines: str) -> None:
    """Tells people something on stderr, beside the result."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def complain(error: Pt2hubError, *, as_json: bool) -> None:
    """Prints what happened, where, and what to do next."""
    if as_json:
        print_json({"error": error.as_dict()})
        return
    first, *rest = str(error).splitlines()
    print(f"pt2hub: {first}", *rest, f"  [{error.code}]", sep="\n", file=sys.stderr)


def unforeseen(exc: Exception) -> InternalError:
    """An exception that nobody translated, as our error."""
    frames = traceback.extract_tb(exc.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    return InternalError(
        f"Something failed that pt2hub did not foresee: {type(exc).__name__}: {exc}",
        where=place,
        hint="Please report it with the command that led here.",
    )
