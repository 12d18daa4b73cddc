"""`pt2hub logs`: the log of a build, as it is or as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import INTERRUPTED, is_json, note, print_json
from pt2hub.domain.codec import encode
from pt2hub.rendering.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.wire.responses import BuildView, LogView


@panels.command(
    panels.READING,
    "pt2hub logs -f 688d2e6fd6eb1e11",
    "pt2hub logs vision/resnet18@3 --target torch2.13-cpu-x86_64_v4 --all",
)
def logs(
    build: Annotated[
        str,
        typer.Argument(
            metavar="ID|MODEL@REF", help="The id of a build, as publish and show print it, or a version."
        ),
    ],
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until the build has ended.")
    ] = False,
    target: Annotated[
        str | None, typer.Option(help="The build to take where the version has several.")
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option(min=1, help="Number of the attempt; the latest if omitted.", show_default=False),
    ] = None,
    whole: Annotated[bool, typer.Option("--all", help="Include the compiler's noise.")] = False,
) -> None:
    """Show the log of a build: its steps and what the model printed.

    --follow continues from attempt to attempt; together with --json it prints one JSON value per line.
    """
    from pt2hub.cli.builds.status_line import BuildStatusLine
    from pt2hub.cli.references import NO_BUILD, add_hint, build_of
    from pt2hub.client.client import Client
    from pt2hub.errors import InvalidInput

    if follow and attempt is not None:
        raise InvalidInput(
            "--follow and --attempt cannot be combined",
            where="--attempt",
            hint="--follow continues from attempt to attempt; leave out one of the two.",
        )
    with Client() as client, add_hint(NO_BUILD):
        build_id = build_of(client, build, target)
        if follow:
            status_line = None if is_json() else BuildStatusLine()
            lines = client.builds.follow_logs(build_id, summary=not whole, on_build=status_line)
            _print_followed(lines)
            return
        lines = client.builds.logs(build_id, attempt=attempt, summary=not whole)
        if is_json():
            print_json({"lines": list(lines)})
            return
        if not _print_lines(lines):
            _note_removal(client.builds.get(build_id), attempt)


def _print_followed(lines: Iterator[LogView]) -> None:
    import json

    try:
        for line in lines:
            print(json.dumps(encode(line)) if is_json() else str(line), flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None  # Ctrl-C is how to end it; every printed line is complete


def _print_lines(lines: Iterator[LogView]) -> int:
    """Print lines; return how many."""
    shown = last = 0
    for line in lines:
        print(str(line))
        shown, last = shown + 1, line.seq
    if last > shown:  # lines are numbered without gaps
        note(f"{last - shown} lines of compiler output are hidden. To show them: --all")
    return shown


def _note_removal(build: BuildView, attempt: int | None) -> None:
    """Say that a log is empty because it was old."""
    number = attempt or build.attempt
    days = next((item.log_removed_after_days for item in build.attempts if item.number == number), None)
    if days is not None:
        note(f"The log of attempt {number} was removed after {format_count(days, 'day')}.")
