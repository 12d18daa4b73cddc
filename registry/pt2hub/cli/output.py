"""Output of commands: text for people, one JSON value on stdout for programs, errors without tracebacks."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import textwrap
import traceback
import warnings
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from pt2hub.domain.codec import encode
from pt2hub.errors import INVISIBLE_CHARACTERS, InternalError, InvalidInput, Pt2hubError, UsageError
from pt2hub.rendering.quantities import fit_encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

_JSON: ContextVar[bool] = ContextVar("json", default=False)
_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)

_API_HINTS = ("Send {", "GET /api/")
_API_PLACES = ("document", "address")
"""What the server names as the place of an invalid request: its body or its URL."""
_SIGNALLED = 128
"""Shells add this to the number of the signal that ended a command."""
INTERRUPTED = _SIGNALLED + signal.SIGINT
"""The exit code after Ctrl-C."""


def choose_json(value: bool) -> None:
    """Set whether this command prints JSON, from the `--json` option of every command."""
    _JSON.set(value)


def is_json() -> bool:
    """Return whether this command prints one JSON value and nothing else on stdout."""
    return _JSON.get()


def choose_quiet(value: bool) -> None:
    """Set whether this command shows no progress, from the `--quiet` option of every command."""
    _QUIET.set(value)


def is_quiet() -> bool:
    """Return whether this command shows no progress."""
    return is_json() or _QUIET.get()


def shows_progress() -> bool | None:
    """Return the `progress` option of client calls: False if quiet, None for the client's own choice."""
    return False if is_quiet() else None


def emit(value: Any, human: Callable[[Console], None]) -> None:
    """Print a result."""
    if is_json():
        print_json(value)
    else:
        from pt2hub.client.consoles import console

        human(console())


def print_json(value: Any) -> None:
    """Print one JSON value on one line of stdout."""
    print(json.dumps(encode(value), default=str), flush=True)  # in ASCII, which every encoding can represent


def print_text(text: str) -> None:
    """Print an untrusted text of several lines on stdout, without invisible characters."""
    shown = fit_encoding(text.translate(INVISIBLE_CHARACTERS), sys.stdout.encoding)
    print(shown, end="" if shown.endswith("\n") else "\n", flush=True)


def note(*lines: str) -> None:
    """Print lines for people on stderr, apart from the result."""
    for line in lines:
        print(_print_error(line.translate(INVISIBLE_CHARACTERS)), file=sys.stderr, flush=True)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning on stderr without its place in the code; replaces `warnings.showwarning`."""
    del category, filename, lineno, file, line
    note(f"pt2hub: warning: {message}")


@contextmanager
def collect_warnings(*wanted: type[Warning]) -> Iterator[list[str]]:
    """Print warnings of some categories always; with `--json` only collect them, for the document."""
    found: list[str] = []

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        if issubclass(category, wanted):
            found.append(str(message))
        if not (is_json() and issubclass(category, wanted)):
            show_warning(message, category, filename, lineno)

    with warnings.catch_warnings():
        for category in wanted:
            warnings.simplefilter("always", category)
        warnings.showwarning = show  # type: ignore[assignment]  # the others are not looked at
        yield found


def complain(error: Pt2hubError, *, as_text: bool = False) -> None:
    """Print an error: what happened, where, and what to do next.

    Args:
        as_text: Print text on stderr even with `--json`.
    """
    if is_json() and not as_text:
        with suppress(OSError):  # stdout is full or closed: fall back to stderr
            print_json({"error": error.as_dict()})
            return
    first, *rest = _print_error(str(_without_api_terms(error))).splitlines()
    lines = (f"pt2hub: {first}", *rest, f"  [{error.code}]")
    print(*map(_fit_terminal, lines), sep="\n", file=sys.stderr)


def _without_api_terms(error: Pt2hubError) -> Pt2hubError:
    """Return an error without the parts that only help callers of the API, such as an example of a request's body."""
    hint, where = error.hint or "", error.where
    if not hint.startswith(_API_HINTS) and where not in _API_PLACES:
        return error
    return error.replace(
        where=None if where in _API_PLACES else where, hint=None if hint.startswith(_API_HINTS) else hint
    )


def _fit_terminal(line: str) -> str:
    """Return a line of an error broken between words for a terminal; off a terminal it stays whole, for grep."""
    if not sys.stderr.isatty():
        return line
    indent = "  " if line.startswith(" ") else ""
    return textwrap.fill(
        line.strip(),
        shutil.get_terminal_size().columns,
        initial_indent=indent,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _print_error(text: str) -> str:
    """Return a text as stderr can encode it."""
    return fit_encoding(text, sys.stderr.encoding)


def report_interrupt(number: int = signal.SIGINT) -> int:
    """Report that a signal ended the command; return the exit code."""
    if is_json():
        error = UsageError(
            "The command was interrupted",
            hint="Requests that the server accepted remain in effect; check before you repeat the command.",
        )
        complain(error)
    return _SIGNALLED + number


def unencodable(exc: UnicodeEncodeError) -> InvalidInput:
    """Return the error for text that cannot be encoded, such as an argument with bytes that are not UTF-8."""
    return InvalidInput(
        f"{exc.object[exc.start : exc.end]!a} cannot be written in {exc.encoding}",
        hint="Write arguments in UTF-8.",
    )


def unforeseen(exc: Exception) -> InternalError:
    """Return an `InternalError` for an unexpected exception."""
    frames = traceback.extract_tb(exc.__traceback__)
    location = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    return InternalError(
        f"Unexpected error: {type(exc).__name__}: {exc}",
        where=location,
        hint="Please report it, with the command that you ran.",
    )


def one_line(text: str) -> str:
    """Return untrusted text on one line, without control characters that could repaint a terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
