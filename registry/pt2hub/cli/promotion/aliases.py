"""`pt2hub alias`: lists, moves, rolls back and removes aliases, and shows their history."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, TypedDict

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, is_quiet, one_line
from pt2hub.errors import AliasMoved, Conflict, NotFound
from pt2hub.rendering.times import format_local_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.performance import PromotionPreview
    from pt2hub.wire.responses import AliasMove, AliasView

_NO_ALIAS = "none"
"""Value of --expect for an alias that must not exist."""
_NOWHERE = "nothing"
_FAILED = 1


_Model = Annotated[str, typer.Argument(metavar="MODEL", help="team/name.")]
_Version = Annotated[
    str, typer.Argument(metavar="MODEL@REF", help="The version: team/name@3, another alias or a digest.")
]
_Name = Annotated[str, typer.Argument(help="The alias, such as prod.")]
_Reason = Annotated[str, typer.Option(help="Reason for the move, kept in the alias's history.")]
_MoveReason = Annotated[
    str | None,
    typer.Option(help="Reason for the move, kept in the alias's history; required without --dry-run."),
]
_DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Move nothing; print every check of the policy, and fail if one refuses the move."
    ),
]
_Expect = Annotated[
    str | None,
    typer.Option(
        metavar="N|none",
        help="Move only if the alias is on this version, or does not exist (none); for scripts.",
    ),
]
_ExpectNumber = Annotated[
    str | None,
    typer.Option(metavar="N", help="Move only if the alias is on this version; for scripts."),
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


def register(app: typer.Typer) -> None:
    """Add the commands of aliases to the app."""
    group = typer.Typer(
        help="Aliases: movable names on versions, such as prod.", no_args_is_help=True, suggest_commands=False
    )
    panels.add(group, ls, set_alias, rollback, rm, log)
    app.add_typer(group, name="alias", rich_help_panel=panels.PUBLISHING)


@panels.command(None, "pt2hub alias ls vision/resnet18")
def ls(model: _Model) -> None:
    """List the aliases of a model."""
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    name = model_name(model)
    with Client() as client:
        found = client.aliases.list(name)
    emit({"aliases": found}, lambda out: _print_list(out, name, found))


@panels.command(None, "pt2hub alias log vision/resnet18 prod")
def log(model: _Model, name: _Name) -> None:
    """Show where an alias is, and its moves with their reasons."""
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    with Client() as client:
        view = client.aliases.get(model_name(model), name)
    emit(view, lambda out: _print_history(out, view))


@panels.command(
    None,
    'pt2hub alias set vision/resnet18@3 prod --reason "canary passed"',
    "pt2hub alias set vision/resnet18@3 prod --dry-run",
    'pt2hub alias set vision/resnet18@3 prod --wait --reason "faster"',
    'pt2hub alias set vision/resnet18@3 prod --expect 2 --reason "release 1.4"',
    'pt2hub alias set vision/resnet18@4 prod --force --reason "mends a wrong result, slower or not"',
    name="set",
)
def set_alias(  # noqa: PLR0913  # each is an argument or option of the command line
    version: _Version,
    name: _Name,
    *,
    reason: _MoveReason = None,
    dry_run: _DryRun = False,
    expect: _Expect = None,
    force: _Force = False,
    wait: _Wait = False,
    timeout: _Timeout = None,
) -> None:
    """Move an alias to a version, or create it.

    A move succeeds only if the alias was not moved meanwhile, and if the model's policy allows it.
    If measurements are missing, the policy refuses; --wait waits for the measuring jobs first.
    """
    model, at, _ = version.partition("@")
    if not at:
        raise click.UsageError(
            f'The version is required: pt2hub alias set {version}@REF {name} --reason "..."'
        )
    if dry_run:
        _refuse_with_dry_run(expect, timeout, force=force, wait=wait)
        _preview(model, version, name)
        return
    _check_move_options(reason, expect, wait=wait, timeout=timeout)
    options: _MoveOptions = {"reason": reason or "", "force": force, "wait": wait, "timeout": timeout}
    _move(model, version, name, expect, options)


@panels.command(
    None,
    'pt2hub alias rollback vision/resnet18 prod --reason "latency rose"',
    "pt2hub alias rollback vision/resnet18 prod --dry-run",
)
def rollback(  # noqa: PLR0913  # each is an argument or option of the command line
    model: _Model,
    name: _Name,
    *,
    reason: _MoveReason = None,
    dry_run: _DryRun = False,
    expect: _ExpectNumber = None,
    force: _Force = False,
    wait: _Wait = False,
    timeout: _Timeout = None,
) -> None:
    """Move an alias back to the version that it was on before.

    A version that a rollback left is not returned to: after 1, 2, 3 and a rollback to 2, the next one goes to 1. It passes at once if the alias was on that version under the present policy.
    """
    from pt2hub.cli.references import model_name

    if dry_run:
        _refuse_with_dry_run(expect, timeout, force=force, wait=wait)
        _preview(model_name(model), None, name)
        return
    _check_move_options(reason, expect, wait=wait, timeout=timeout, is_new_allowed=False)
    options: _MoveOptions = {"reason": reason or "", "force": force, "wait": wait, "timeout": timeout}
    _move(model_name(model), None, name, expect, options)


@panels.command(None, 'pt2hub alias rm vision/resnet18 canary --reason "no longer used"')
def rm(model: _Model, name: _Name, *, reason: _Reason, expect: _ExpectNumber = None) -> None:
    """Remove an alias; its history is kept."""
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    _check_move_options(reason, expect, is_new_allowed=False)
    with Client() as client:
        _remove(client, model_name(model), name, expect, reason)


def _refuse_with_dry_run(expect: str | None, timeout: float | None, *, force: bool, wait: bool) -> None:
    given = {
        "--expect": expect is not None,
        "--timeout": timeout is not None,
        "--force": force,
        "--wait": wait,
    }
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise click.UsageError(f"{wrong[0]} has no meaning with --dry-run, which moves nothing.")


def _check_move_options(
    reason: str | None,
    expect: str | None,
    *,
    wait: bool = False,
    timeout: float | None = None,
    is_new_allowed: bool = True,
) -> None:
    if not (reason or "").strip():
        raise click.UsageError('--reason "..." is required; it is kept in the history.')
    if expect == _NO_ALIAS and not is_new_allowed:
        raise click.UsageError("--expect none is only for `pt2hub alias set`, which can create an alias.")
    if expect is not None and expect != _NO_ALIAS and not (expect.isascii() and expect.isdigit()):
        raise click.UsageError(f"--expect must be a version number or {_NO_ALIAS}, got {expect[:80]!r}.")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout requires --wait.")


def _preview(model: str, version: str | None, name: str) -> None:
    """Print the checks of a move, or of a rollback if no version is given.

    Raises:
        Exit: A check refuses the move.
    """
    from pt2hub.cli.references import number_of
    from pt2hub.client.client import Client

    with Client() as client:
        target = number_of(client, version)[1] if version else _number_before(client.aliases.get(model, name))
        view = client.aliases.preview(model, name, target)
    emit(view, lambda out: _print_preview(out, view))
    if not view.allowed:
        raise typer.Exit(_FAILED)


def _move(model: str, version: str | None, name: str, expect: str | None, options: _MoveOptions) -> None:
    """Move an alias to a version, or back if none is given."""
    from pt2hub.cli.references import number_of
    from pt2hub.client.builds.progress import progress
    from pt2hub.client.client import Client

    with Client() as client:
        number = number_of(client, version)[1] if version else None
        is_stated = version is not None and expect is not None
        now = None if is_stated else _current(client, model, name, may_be_new=version is not None)
        expected = _expected(expect, now)
        target = number or _number_before(now)
        quiet = is_quiet() or not options["wait"]
        with _conflicts_explained(model, name), progress(quiet=quiet) as display:
            view = client.aliases.move(model, name, target, expected=expected, on_event=display, **options)
    emit(view, lambda out: _print_move(out, view, expected))


def _remove(client: Client, model: str, name: str, expect: str | None, reason: str) -> None:
    expected = _expected(expect, client.aliases.get(model, name))
    if expected is None:
        raise NotFound(
            f"Alias {model}@{name} not found",
            where="alias",
            hint=f"To see its history: pt2hub alias log {model} {name}",
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
    """Return the version to roll back to, as the pages offer it; of an alias that was removed, the one that it was on."""
    from pt2hub.domain.rollbacks import rollback_version

    back = None
    if now:
        steps = [(move.before, move.after) for move in reversed(now.history)]
        back = rollback_version(steps) if now.number else now.last.before
    if back is None:
        name = f"{now.model} {now.name}" if now else ""
        raise Conflict(
            f"Cannot roll back {name.replace(' ', '@')}: no earlier version is left to go back to",
            where="alias",
            hint=f"To see its history: pt2hub alias log {name}. To remove it: pt2hub alias rm {name} --reason WHY",
        )
    return back


@contextlib.contextmanager
def _conflicts_explained(model: str, name: str) -> Iterator[None]:
    """Add the commands to check and repeat a move to the error for a concurrent one."""
    try:
        yield
    except AliasMoved as exc:
        winner = exc.context.get("winner")
        number = winner.get("number") if isinstance(winner, dict) else None
        expect = _NO_ALIAS if number is None else number
        hint = f"Check with `pt2hub alias log {model} {name}`; if your move is still right, repeat it with --expect {expect}."
        raise AliasMoved(exc.message, where=exc.where, hint=hint, context=exc.context) from exc


def _print_list(out: Console, model: str, found: list[AliasView]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (item.name, str(item.number), format_local_time(item.last.at), item.last.by, item.last.reason)
        for item in found
    ]
    empty = f'{model} has no aliases. To set one: pt2hub alias set {model}@1 prod --reason "..."'
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


def _print_preview(out: Console, view: PromotionPreview) -> None:
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.promotions import HEADINGS, check_rows, summary

    if view.checks:
        print_table(out, HEADINGS, check_rows(view.checks))
    for line in view.notes:
        out.print(one_line(line))
    out.print(f"{summary(view)}.")


def _arrow(move: AliasMove) -> str:
    return f"{move.before or _NOWHERE} -> {move.after or _NOWHERE}"
