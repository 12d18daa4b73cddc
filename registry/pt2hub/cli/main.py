"""The command line. Commands import what they need when they run, so that help and completion are quick."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub import __version__
from pt2hub.cli import (
    aliases,
    building,
    comparing,
    describing,
    history,
    listing,
    measuring,
    opening,
    output,
    policies,
    publishing,
    pulling,
    reports,
    serving,
    showing,
    working,
)
from pt2hub.errors import Pt2hubError, UsageError
from pt2hub.extras import lacking

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="pt2hub",
    help="Publish a PyTorch model once, pull proven AOTInductor artifacts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
publishing.register_publish(app)
building.register(app)
measuring.register(app)
aliases.register(app)
policies.register(app)
describing.register(app)
listing.register(app)
history.register(app)
comparing.register(app)
reports.register(app)
showing.register(app)
opening.register(app)
publishing.register_logs(app)
pulling.register(app)
serving.register(app)
working.register(app)

_FAILED = 1
_WRONG_USAGE = 2


def _version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Publish a PyTorch model once, pull proven AOTInductor artifacts."""


def main() -> None:
    """Runs the command line of this process."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # as stderr: a name that it cannot show is no failure
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Runs one command.

    Args:
        args: As on the command line, without the program.

    Returns:
        0 where it did what was asked, 1 where it failed, 2 where the command itself is wrong; 130 after Ctrl-C.
    """
    as_json = "--json" in args
    try:
        return int(app(args=list(args), prog_name="pt2hub", standalone_mode=False) or 0)
    except click.ClickException as exc:
        _explain_usage(exc, as_json=as_json)
        return _WRONG_USAGE
    except (click.Abort, KeyboardInterrupt):
        return output.interrupted(as_json=as_json)
    except BrokenPipeError:  # the reader of a pipe has gone, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    except ModuleNotFoundError as exc:
        output.complain(_missing(exc), as_json=as_json)
    except UnicodeEncodeError as exc:
        output.complain(output.unencodable(exc), as_json=as_json)
    except Pt2hubError as exc:
        output.complain(exc, as_json=as_json)
    except Exception as exc:  # noqa: BLE001  # the last seam: people get a sentence, not a traceback
        output.complain(output.unforeseen(exc), as_json=as_json)
    return _FAILED


def _missing(exc: ModuleNotFoundError) -> Pt2hubError:
    name = (exc.name or "").partition(".")[0]
    if name == "pt2hub":
        return output.unforeseen(exc)
    return lacking("This command", [name])


def _explain_usage(exc: click.ClickException, *, as_json: bool) -> None:
    if as_json:
        hint = "See pt2hub --help."
        output.print_json({"error": UsageError(exc.format_message(), hint=hint).as_dict()})
    else:
        exc.show()
