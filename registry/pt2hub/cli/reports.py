"""`pt2hub report`: figures that were taken elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit, note
from pt2hub.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from pt2hub.domain.artifacts import Environment
    from pt2hub.wire.performance import Reported

_STDIN = "-"
_FIGURES = "measurements"
_MACHINES = "environments"
_HERE = ("auto", "cuda")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    panels.add(
        app,
        report,
        panels.PUBLISHING,
        "pt2hub report figures.json",
        "pt2hub report figures.jsonl --environment production.json",
        "measure | pt2hub report - --environment auto",
    )


def report(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="JSON, a JSON list, or one JSON object a line.")
    ],
    *,
    environment: Annotated[
        str | None,
        typer.Option(
            metavar="auto|cuda|FILE",
            help="Where figures were taken that do not say it: here (`cuda`: on the GPU here), or as a JSON file says.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report performance measured elsewhere, such as in production.

    A figure says artifact, metric, value and unit; also batch, replicates, measured_at, key and others.
    What was sent before is not counted twice: a report that broke off can be sent again.
    """
    from pt2hub.client.client import Client

    figures, machines = _read(file)
    place = None if environment is None else _machine(environment)
    with Client() as client:
        shown = _progress(len(figures), quiet=as_json)
        told = client.report(figures, environment=place, environments=machines, on_batch=shown)
    emit(told, lambda out: _print(out, told), as_json=as_json)


def _read(file: str) -> tuple[list[Any], dict[str, Any]]:
    """Figures and named machines of a file."""
    text = _text(file)
    value = _parsed(text, file)
    if isinstance(value, dict) and _FIGURES in value:
        unknown = sorted(value.keys() - {_FIGURES, _MACHINES})
        machines = value.get(_MACHINES) or {}
        if unknown or not isinstance(value[_FIGURES], list) or not isinstance(machines, dict):
            raise InvalidInput(
                f"The report has a field {unknown[0]}"
                if unknown
                else "The report has fields of another kind",
                where=file,
                hint='Write {"measurements": [...], "environments": {...}}, a list, or one figure a line.',
            )
        return value[_FIGURES], machines
    return (value if isinstance(value, list) else [value]), {}


def _parsed(text: str, file: str) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return json.loads(text)
    except RecursionError as exc:
        raise InvalidInput("The report is nested too deeply", where=file) from exc
    except ValueError as whole:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) <= 1 or not lines[0][1].rstrip().endswith("}"):
            raise InvalidInput(f"The report is not JSON: {whole}", where=file) from whole
    return [_line(line, f"{file}, line {number}") for number, line in lines]


def _line(line: str, where: str) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(
            f"The line is not JSON: {exc}", where=where, hint="Write one figure a line."
        ) from exc


def _machine(said: str) -> Environment | dict[str, Any]:
    """The machine that `--environment` names."""
    if said.partition(":")[0] in _HERE:
        from pt2hub.client.fingerprint import environment

        return environment(device="cpu" if said == _HERE[0] else said)
    value = _parsed(_text(said), said)
    if not isinstance(value, dict):
        raise InvalidInput(
            "The environment is no object", where=said, hint="pt2hub.environment() on that machine says one."
        )
    return value


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidInput("The file is not UTF-8", where=file) from exc
    except OSError as exc:
        raise UsageError(f"The file cannot be read: {exc.strerror}", where=file) from exc


def _progress(count: int, *, quiet: bool) -> Callable[[Reported], object] | None:
    from pt2hub.client.reporting import BATCH

    if quiet or count <= BATCH:
        return None
    return lambda told: note(f"{told.accepted + told.duplicates} of {count} figures delivered")


def _print(out: Console, told: Reported) -> None:
    again = f", {told.duplicates} had been delivered before" if told.duplicates else ""
    figures = "figure" if told.accepted == 1 else "figures"
    out.print(f"{told.accepted} {figures} kept{again}.", markup=False)
    for line in told.notes:
        out.print(f"  {line}", markup=False)
