"""`pt2hub report`: sends measurements taken elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, is_json, note
from pt2hub.errors import InvalidInput, UsageError
from pt2hub.rendering.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from pt2hub.domain.artifacts import Environment
    from pt2hub.wire.performance import Reported

_STDIN = "-"
_MEASUREMENTS = "measurements"
_ENVIRONMENTS = "environments"
_THIS_MACHINE = ("auto", "cuda")


@panels.command(
    panels.PUBLISHING,
    "pt2hub report figures.json",
    "pt2hub report figures.jsonl --environment production.json",
    "pt2hub report evaluations.json",
    "measure | pt2hub report - --environment auto",
)
def report(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="JSON: one object, a list, or one object per line.")
    ],
    *,
    environment: Annotated[
        str | None,
        typer.Option(
            metavar="auto|cuda|FILE",
            help="Environment of measurements without one of their own: this machine (auto), its GPU (cuda), or a JSON file.",
        ),
    ] = None,
) -> None:
    """Report performance measured elsewhere, or evaluations.

    A measurement has the fields artifact, metric, value and unit, and optionally batch, replicates,
    measured_at, key and others. An evaluation has version, metric, value, unit, data_set and count.
    An interrupted report can be sent again: duplicates are not counted twice.
    """
    from pt2hub.client.client import Client

    measurements, environments = _read(file)
    if _are_evaluations(measurements, file):
        with Client() as client:
            result = client.performance.report_evaluations(measurements)
        emit(result, lambda out: _print(out, result, "evaluation"))
        return
    default = None if environment is None else _read_environment(environment)
    with Client() as client:
        result = client.performance.report(
            measurements,
            environment=default,
            environments=environments,
            on_batch=_progress(len(measurements)),
        )
    emit(result, lambda out: _print(out, result))


def _read(file: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the measurements and named environments in a file."""
    text = _text(file)
    value = _parse(text, file)
    if isinstance(value, dict) and _MEASUREMENTS in value:
        unknown = sorted(value.keys() - {_MEASUREMENTS, _ENVIRONMENTS})
        environments = value.get(_ENVIRONMENTS) or {}
        if unknown or not isinstance(value[_MEASUREMENTS], list) or not isinstance(environments, dict):
            raise InvalidInput(
                f"Unknown field {unknown[0]!r}"
                if unknown
                else "measurements must be a list, and environments an object",
                where=file,
                hint='Write {"measurements": [...], "environments": {...}}, a list, or one measurement per line.',
            )
        return value[_MEASUREMENTS], environments
    return (value if isinstance(value, list) else [value]), {}


def _are_evaluations(items: list[Any], file: str) -> bool:
    """Return whether all items of a report are evaluations, which name a version instead of an artifact."""
    count = sum(isinstance(item, dict) and "version" in item for item in items)
    if 0 < count < len(items):
        raise InvalidInput(
            "The report has measurements of artifacts and evaluations of versions",
            where=file,
            hint="Write them into two files: each is stored as a whole or not at all.",
        )
    return count > 0


def _parse(text: str, file: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as exc:
        raise InvalidInput("The report is nested too deeply", where=file) from exc
    except ValueError as whole:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) <= 1 or not lines[0][1].rstrip().endswith("}"):
            raise InvalidInput(f"The report is not JSON: {whole}", where=file) from whole
    return [_line(line, f"{file}, line {number}") for number, line in lines]


def _line(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(
            f"The line is not JSON: {exc}", where=where, hint="Write one measurement per line."
        ) from exc


def _read_environment(source: str) -> Environment | dict[str, Any]:
    """Return the environment that `--environment` names."""
    if source.partition(":")[0] in _THIS_MACHINE:
        from pt2hub.client.machine.fingerprint import environment

        return environment(device="cpu" if source == _THIS_MACHINE[0] else source)
    value = _parse(_text(source), source)
    if not isinstance(value, dict):
        raise InvalidInput(
            "The environment must be a JSON object",
            where=source,
            hint="To get one, call pt2hub.environment() on that machine.",
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


def _progress(count: int) -> Callable[[Reported], object] | None:
    from pt2hub.client.performance.reporter import BATCH

    if is_json() or count <= BATCH:
        return None
    return lambda result: note(f"{result.accepted + result.duplicates} of {count} measurements sent")


def _print(out: Console, result: Reported, what: str = "measurement") -> None:
    again = f", {result.duplicates} already stored" if result.duplicates else ""
    out.print(f"{format_count(result.accepted, what)} stored{again}.")
    for line in result.notes:
        out.print(f"  {line}")
