"""`pt2hub alias`: movable names on versions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit
from pt2hub.cli.words import one_line, when
from pt2hub.errors import AliasMoved, Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.shapes import AliasMove, AliasView

_NO_ALIAS = "none"
"""What --expect takes for an alias that must not exist; a number could be taken for a version."""
_NOWHERE = "nothing"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    panels.add(
        app,
        alias,
        panels.PUBLISHING,
        "pt2hub alias vision/resnet18",
        "pt2hub alias vision/resnet18 prod",
        'pt2hub alias vision/resnet18@3 prod --reason "canary passed"',
        'pt2hub alias vision/resnet18@3 prod --wait --reason "faster"',
        'pt2hub alias vision/resnet18@3 prod --expect 2 --reason "release 1.4"',
        'pt2hub alias vision/resnet18 prod --rollback --reason "latency rose"',
        'pt2hub alias vision/resnet18@4 prod --force --reason "mends a wrong result, slower or not"',
    )


@dataclass(frozen=True, slots=True)
class _Change:
    """What shall happen to an alias.

    Attributes:
        model: The model's name.
        name: The alias's name.
        reason: Why.
        expect: As given with --expect.
        remove: Take it away.
        rollback: Put it back where it was before its last move; otherwise it goes where the reference says.
        force: Even where the model's policy refuses.
        wait: For measurements that the policy lacks.
        timeout: Seconds after which it waits no longer, None for as long as they take.
        quiet: Shows no progress of what it waits for.
    """

    model: str
    name: str
    reason: str
    expect: str | None
    remove: bool
    rollback: bool
    force: bool
    wait: bool = False
    timeout: float | None = None
    quiet: bool = False

    def expected(self, now: AliasView | None) -> int | None:
        """Where the alias must be for the change to be made: as given, else where it was just seen."""
        if self.expect is None:
            return now.number if now else None
        return None if self.expect == _NO_ALIAS else int(self.expect)


def alias(  # noqa: PLR0913  # each is an argument or option of the command line
    model: Annotated[
        str, typer.Argument(metavar="MODEL[@REF]", help="team/name, or the version to move the alias to.")
    ],
    name: Annotated[str | None, typer.Argument(help="The alias, such as prod.")] = None,
    *,
    reason: Annotated[str | None, typer.Option(help="Why it moves; kept in its history.")] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="N|none",
            help="Move only if it is on this version, or with `none` only if it does not exist; for scripts.",
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take it away; its history stays.")] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Put it back where it was before its last move.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Move it even where the model's policy refuses; takes an admin's token."
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            "-w",
            help="Where the policy lacks nothing but figures that a measuring job will bring, wait for it and move the "
            "alias as soon as it passes.",
        ),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="With --wait: give up after so long; the alias stays."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List, show, move, roll back or remove aliases.

    MODEL lists a model's aliases, MODEL NAME shows one with its history.
    MODEL@REF NAME moves it to what REF names: number, alias or digest.
    A move succeeds only if nobody else moved the alias meanwhile, and if the model's policy allows it.
    A policy that lacks figures refuses; with --wait the move waits for the measuring jobs that are under way.
    """
    from pt2hub.client.client import Client

    plain, at, _ = model.partition("@")
    _check_usage(name, reason, expect, [bool(at), remove, rollback])
    for option, given in (("--force", force), ("--wait", wait)):
        if given and not (at or rollback):
            raise click.UsageError(f"{option} belongs to a move: MODEL@REF NAME or --rollback.")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout belongs to --wait.")
    with Client() as client:
        if name is None:
            found = client.aliases(plain)
            emit({"aliases": found}, lambda out: _print_list(out, plain, found), as_json=as_json)
            return
        if reason is None:
            view = client.alias(plain, name)
            emit(view, lambda out: _print_history(out, view), as_json=as_json)
            return
        change = _Change(
            plain, name, reason, expect, remove, rollback, force, wait=wait, timeout=timeout, quiet=as_json
        )
        try:
            expected, view = _changed(client, change, model)
        except AliasMoved as exc:
            raise _lost(exc, change) from exc
    emit(view, lambda out: _print_move(out, view, expected), as_json=as_json)


def _check_usage(name: str | None, reason: str | None, expect: str | None, actions: Sequence[bool]) -> None:
    acts = sum(actions)
    if acts > 1:
        raise click.UsageError("Choose one: MODEL@REF to move to, --rollback or --remove.")
    if name is None and (acts or reason or expect):
        raise click.UsageError('Name the alias: pt2hub alias MODEL@REF NAME --reason "..."')
    if acts and not (reason or "").strip():
        raise click.UsageError('Say why with --reason "..."; it is kept in the history.')
    if not acts and (reason is not None or expect is not None):
        raise click.UsageError('Say where to: pt2hub alias MODEL@REF NAME --reason "..."')
    if expect == _NO_ALIAS and any(actions[1:]):
        raise click.UsageError(
            "--expect none is for an alias that does not exist; there is nothing to take back."
        )
    if expect is not None and expect != _NO_ALIAS and not (expect.isascii() and expect.isdigit()):
        raise click.UsageError(f"--expect takes the number of a version or {_NO_ALIAS}, not {expect[:80]!r}.")


def _changed(client: Client, change: _Change, reference: str) -> tuple[int | None, AliasView]:
    """Makes the change; where the alias was expected, and where it is now."""
    if change.remove or change.rollback:
        now = client.alias(change.model, change.name)
        expected = change.expected(now)
        view = _rolled_back(client, change, now) if change.rollback else _removed(client, change, expected)
        return expected, view
    from pt2hub.cli.references import number_of

    _, number = number_of(client, reference)
    expected = change.expected(_current(client, change))
    return expected, _moved(client, change, number, expected)


def _current(client: Client, change: _Change) -> AliasView | None:
    if change.expect is not None:
        return None
    try:
        return client.alias(change.model, change.name)
    except NotFound:
        return None


def _removed(client: Client, change: _Change, expected: int | None) -> AliasView:
    if expected is None:
        raise NotFound(
            f"There is no alias {change.name} of {change.model}",
            where="alias",
            hint=f"pt2hub alias {change.model} {change.name} shows its history.",
        )
    return client.remove_alias(change.model, change.name, reason=change.reason, expected=expected)


def _rolled_back(client: Client, change: _Change, now: AliasView) -> AliasView:
    before = now.last.before
    if before is None:
        raise Conflict(
            f"{change.model}@{change.name} was on no other version before its last move",
            where="alias",
            hint=f"pt2hub alias {change.model} {change.name} shows its history; --remove takes it away.",
        )
    return _moved(client, change, before, change.expected(now))


def _moved(client: Client, change: _Change, number: int, expected: int | None) -> AliasView:
    move = partial(
        client.move_alias,
        change.model,
        change.name,
        number,
        reason=change.reason,
        expected=expected,
        force=change.force,
    )
    if not change.wait:
        return move()
    from pt2hub.client.progress import progress

    with progress(quiet=change.quiet) as display:
        return move(wait=True, timeout=change.timeout, on_event=display)


def _lost(exc: AliasMoved, change: _Change) -> AliasMoved:
    """The error of a lost race, with the commands that look and try again."""
    winner = exc.context.get("winner")
    number = winner.get("number") if isinstance(winner, dict) else None
    expect = _NO_ALIAS if number is None else number
    hint = (
        f"Look with `pt2hub alias {change.model} {change.name}`; if your move is still right, repeat it with "
        f"--expect {expect}."
    )
    return AliasMoved(exc.message, where=exc.where, hint=hint, context=exc.context)


def _print_list(out: Console, model: str, found: list[AliasView]) -> None:
    from pt2hub.cli.tables import print_table

    if not found:
        out.print(
            f'{model} has no aliases. Set one: pt2hub alias {model}@1 prod --reason "..."', markup=False
        )
        return
    rows = [
        (item.name, str(item.number), when(item.last.at), item.last.by, item.last.reason) for item in found
    ]
    print_table(out, ("ALIAS", "VERSION", "SINCE", "BY", "REASON"), rows)


def _print_history(out: Console, view: AliasView) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.printing import forced

    now = f"version {view.number}" if view.number else "nothing: it was removed"
    out.print(f"{view.model}@{view.name} is on {now}", markup=False)
    rows = [(str(move.sequence), _arrow(move), when(move.at), move.by, move.reason) for move in view.history]
    print_table(out, ("MOVE", "FROM -> TO", "AT", "BY", "REASON"), rows)
    for move in view.history:
        for line in forced(move):
            out.print(f"Move {move.sequence} was {one_line(line)}", markup=False)


def _print_move(out: Console, view: AliasView, expected: int | None) -> None:
    from pt2hub.rendering.printing import forced

    if view.number == expected:
        out.print(f"{view.model}@{view.name} is on {view.number} already; nothing was changed.", markup=False)
        return
    out.print(f"{view.model}@{view.name}: {_arrow(view.last)}", markup=False)
    out.print(f"  {one_line(view.last.reason)} (by {view.last.by}, {when(view.last.at)})", markup=False)
    for note in forced(view.last) or view.notes:
        out.print(f"  {one_line(note)}", markup=False)


def _arrow(move: AliasMove) -> str:
    return f"{move.before or _NOWHERE} -> {move.after or _NOWHERE}"
