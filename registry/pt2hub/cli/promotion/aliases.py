"""`pt2hub alias`: lists, shows, moves and removes aliases."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, TypedDict

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, is_json, one_line
from pt2hub.errors import AliasMoved, Conflict, NotFound
from pt2hub.rendering.times import format_local_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.responses import AliasMove, AliasView

_NO_ALIAS = "none"
"""Value of --expect for an alias that must not exist."""
_NOWHERE = "nothing"


_Model = Annotated[
    str, typer.Argument(metavar="MODEL[@REF]", help="team/name, or the version to move the alias to.")
]
_Name = Annotated[str | None, typer.Argument(help="The alias, such as prod.")]
_Reason = Annotated[str | None, typer.Option(help="Reason for the move, kept in the alias's history.")]
_Expect = Annotated[
    str | None,
    typer.Option(
        metavar="N|none",
        help="Move only if the alias is on this version, or does not exist (none); for scripts.",
    ),
]
_Remove = Annotated[bool, typer.Option("--remove", help="Remove the alias; its history is kept.")]
_Rollback = Annotated[
    bool, typer.Option("--rollback", help="Move the alias back to where it was before its last move.")
]
_Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Move the alias even if the model's policy refuses; requires an admin token."
    ),
]
_Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        "-w",
        help="If only measurements of queued or running jobs are missing, wait for them, then move the alias if "
        "the policy passes.",
    ),
]
_Timeout = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="With --wait: give up after this time; the alias stays where it is.",
    ),
]


class _MoveOptions(TypedDict):
    reason: str
    force: bool
    wait: bool
    timeout: float | None


@panels.command(
    panels.PUBLISHING,
    "pt2hub alias vision/resnet18",
    "pt2hub alias vision/resnet18 prod",
    'pt2hub alias vision/resnet18@3 prod --reason "canary passed"',
    'pt2hub alias vision/resnet18@3 prod --wait --reason "faster"',
    'pt2hub alias vision/resnet18@3 prod --expect 2 --reason "release 1.4"',
    'pt2hub alias vision/resnet18 prod --rollback --reason "latency rose"',
    'pt2hub alias vision/resnet18@4 prod --force --reason "mends a wrong result, slower or not"',
)
def alias(  # noqa: PLR0913  # each is an argument or option of the command line
    model: _Model,
    name: _Name = None,
    *,
    reason: _Reason = None,
    expect: _Expect = None,
    remove: _Remove = False,
    rollback: _Rollback = False,
    force: _Force = False,
    wait: _Wait = False,
    timeout: _Timeout = None,
) -> None:
    """List, show, move, roll back or remove aliases.

    MODEL lists a model's aliases, MODEL NAME shows one with its history.
    MODEL@REF NAME moves it to the version that REF names by number, alias or digest.
    A move succeeds only if the alias was not moved meanwhile, and if the model's policy allows it.
    If measurements are missing, the policy refuses; --wait waits for the measuring jobs first.
    """
    from pt2hub.client.client import Client

    plain, at, _ = model.partition("@")
    _check_usage(name, reason, expect, [bool(at), remove, rollback])
    _check_move_options(force=force, wait=wait, timeout=timeout, moves=bool(at or rollback))
    with Client() as client:
        if name is None:
            _show_list(client, plain)
        elif reason is None:
            _show_history(client, plain, name)
        elif remove:
            _remove(client, plain, name, expect, reason)
        else:
            options: _MoveOptions = {"reason": reason, "force": force, "wait": wait, "timeout": timeout}
            _move(client, model, name, expect, options)


def _check_usage(name: str | None, reason: str | None, expect: str | None, actions: Sequence[bool]) -> None:
    acts = sum(actions)
    if acts > 1:
        raise click.UsageError("MODEL@REF, --rollback and --remove cannot be combined.")
    if name is None and (acts or reason or expect):
        raise click.UsageError('The alias name is required: pt2hub alias MODEL@REF NAME --reason "..."')
    if acts and not (reason or "").strip():
        raise click.UsageError('--reason "..." is required; it is kept in the history.')
    if not acts and (reason is not None or expect is not None):
        raise click.UsageError('The version is required: pt2hub alias MODEL@REF NAME --reason "..."')
    if expect == _NO_ALIAS and any(actions[1:]):
        raise click.UsageError(
            "--expect none cannot be combined with --rollback or --remove, which need an existing alias."
        )
    if expect is not None and expect != _NO_ALIAS and not (expect.isascii() and expect.isdigit()):
        raise click.UsageError(f"--expect must be a version number or {_NO_ALIAS}, got {expect[:80]!r}.")


def _check_move_options(*, force: bool, wait: bool, timeout: float | None, moves: bool) -> None:
    for option, given in (("--force", force), ("--wait", wait)):
        if given and not moves:
            raise click.UsageError(f"{option} requires a move: MODEL@REF NAME, or --rollback.")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout requires --wait.")


def _show_list(client: Client, model: str) -> None:
    found = client.aliases.list(model)
    emit({"aliases": found}, lambda out: _print_list(out, model, found))


def _show_history(client: Client, model: str, name: str) -> None:
    view = client.aliases.get(model, name)
    emit(view, lambda out: _print_history(out, view))


def _move(client: Client, model: str, name: str, expect: str | None, options: _MoveOptions) -> None:
    """Move an alias to the version that `model` names, or back if it names none."""
    from pt2hub.cli.references import number_of
    from pt2hub.client.builds.progress import progress

    plain, at, _ = model.partition("@")
    number = number_of(client, model)[1] if at else None
    now = None if at and expect is not None else _current(client, plain, name, may_be_new=bool(at))
    expected = _expected(expect, now)
    target = number or _number_before(now)
    with _conflicts_explained(plain, name), progress(quiet=is_json() or not options["wait"]) as display:
        view = client.aliases.move(plain, name, target, expected=expected, on_event=display, **options)
    emit(view, lambda out: _print_move(out, view, expected))


def _remove(client: Client, model: str, name: str, expect: str | None, reason: str) -> None:
    expected = _expected(expect, client.aliases.get(model, name))
    if expected is None:
        raise NotFound(
            f"Alias {model}@{name} not found",
            where="alias",
            hint=f"To see its history: pt2hub alias {model} {name}",
        )
    with _conflicts_explained(model, name):
        view = client.aliases.remove(model, name, reason=reason, expected=expected)
    emit(view, lambda out: _print_move(out, view, expected))


def _current(client: Client, model: str, name: str, *, may_be_new: bool) -> AliasView | None:
    try:
        return client.aliases.get(model, name)
    except NotFound:
        if may_be_new:
            return None
        raise


def _expected(expect: str | None, now: AliasView | None) -> int | None:
    """Return the version that the alias must be on: the one given, else the current one."""
    if expect is None:
        return now.number if now else None
    return None if expect == _NO_ALIAS else int(expect)


def _number_before(now: AliasView | None) -> int:
    """Return the version to roll back to."""
    if now is None or now.last.before is None:
        name = f"{now.model} {now.name}" if now else ""
        raise Conflict(
            f"Cannot roll back {name.replace(' ', '@')}: it did not exist before its last move",
            where="alias",
            hint=f"To see its history: pt2hub alias {name}. To remove it: --remove",
        )
    return now.last.before


@contextlib.contextmanager
def _conflicts_explained(model: str, name: str) -> Iterator[None]:
    """Add the commands to check and repeat a move to the error for a concurrent one."""
    try:
        yield
    except AliasMoved as exc:
        winner = exc.context.get("winner")
        number = winner.get("number") if isinstance(winner, dict) else None
        expect = _NO_ALIAS if number is None else number
        hint = f"Check with `pt2hub alias {model} {name}`; if your move is still right, repeat it with --expect {expect}."
        raise AliasMoved(exc.message, where=exc.where, hint=hint, context=exc.context) from exc


def _print_list(out: Console, model: str, found: list[AliasView]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (item.name, str(item.number), format_local_time(item.last.at), item.last.by, item.last.reason)
        for item in found
    ]
    empty = f'{model} has no aliases. To set one: pt2hub alias {model}@1 prod --reason "..."'
    print_table(out, ("ALIAS", "VERSION", "SINCE", "BY", "REASON"), rows, empty=empty)


def _print_history(out: Console, view: AliasView) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.sheets import forced_move_lines

    now = f"version {view.number}" if view.number else "no version: it was removed"
    out.print(f"{view.model}@{view.name} is on {now}")
    rows = [
        (str(move.sequence), _arrow(move), format_local_time(move.at), move.by, move.reason)
        for move in view.history
    ]
    print_table(out, ("MOVE", "FROM -> TO", "AT", "BY", "REASON"), rows)
    for move in view.history:
        for line in forced_move_lines(move):
            out.print(f"Move {move.sequence} was {one_line(line)}")


def _print_move(out: Console, view: AliasView, expected: int | None) -> None:
    from pt2hub.rendering.sheets import forced_move_lines

    if view.number == expected:
        out.print(f"{view.model}@{view.name} is already on version {view.number}; nothing changed.")
        return
    out.print(f"{view.model}@{view.name}: {_arrow(view.last)}")
    out.print(f"  {one_line(view.last.reason)} (by {view.last.by}, {format_local_time(view.last.at)})")
    for note in forced_move_lines(view.last) or view.notes:
        out.print(f"  {one_line(note)}")


def _arrow(move: AliasMove) -> str:
    return f"{move.before or _NOWHERE} -> {move.after or _NOWHERE}"
