"""How commands speak: text for people, one JSON value on stdout for programs, errors without tracebacks."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.domain.codec import encode
from pt2hub.errors import UNSEEN, InternalError, InvalidInput, Pt2hubError, UsageError
from pt2hub.rendering.quantities import spelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else on stdout.")]
"""The option every command has."""


_SIGNALLED = 128
"""What shells add to the number of the signal that ended a command."""
INTERRUPTED = _SIGNALLED + signal.SIGINT
"""The exit code after Ctrl-C."""


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
        from pt2hub.client.consoles import console

        human(console())


def print_json(value: Any) -> None:  # noqa: ANN401  # any dataclass or JSON value
    """Prints one JSON value on stdout, on one line, so that a reader knows where it ends."""
    print(json.dumps(encode(value), default=str), flush=True)  # in ASCII, which every encoding has


def note(*lines: str) -> None:
    """Tells people something on stderr, beside the result."""
    for line in lines:
        print(_told(line.translate(UNSEEN)), file=sys.stderr, flush=True)


def complain(error: Pt2hubError, *, as_json: bool) -> None:
    """Prints what happened, where, and what to do next."""
    if as_json:
        with suppress(OSError):  # stdout is full or gone: then stderr says it
            print_json({"error": error.as_dict()})
            return
    first, *rest = _told(str(error)).splitlines()
    print(f"pt2hub: {first}", *rest, f"  [{error.code}]", sep="\n", file=sys.stderr)


def _told(text: str) -> str:
    """A text for people on stderr."""
    return spelled(text, sys.stderr.encoding)


def interrupted(number: int = signal.SIGINT, *, as_json: bool) -> int:
    """Tell a program that a signal ended its command; return the exit code.

    Args:
        number: The signal.
        as_json: Whether a program reads along; people know what they pressed.
    """
    if as_json:
        error = UsageError(
            "It was interrupted", hint="What the server has taken stays; look before you repeat it."
        )
        complain(error, as_json=True)
    return _SIGNALLED + number


def unencodable(exc: UnicodeEncodeError) -> InvalidInput:
    """The error of a text that cannot be sent, such as an argument whose bytes are no UTF-8."""
    return InvalidInput(
        f"{exc.object[exc.start : exc.end]!a} cannot be written in {exc.encoding}",
        hint="Write arguments in UTF-8.",
    )


def unforeseen(exc: Exception) -> InternalError:
    """An exception that nobody translated, as our error."""
    frames = traceback.extract_tb(exc.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    return InternalError(
        f"Something failed that pt2hub did not foresee: {type(exc).__name__}: {exc}",
        where=place,
        hint="Please report it with the command that led here.",
    )
