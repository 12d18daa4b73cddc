"""`pt2hub admin`: what an operator does on the server's machine. Server code is imported inside commands only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit
from pt2hub.cli.words import NOTHING, duration, when
from pt2hub.domain.codec import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.domain.key_audits import KeyFinding
    from pt2hub.domain.statistics import QueueStatistics, RepeatedBuild
    from pt2hub.domain.tokens import TokenInfo
    from pt2hub.server.config import ServerConfig


_AT_RISK = 1
"""Exit code of an audit that found something to do."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    admin = typer.Typer(help="What an operator does on the server's machine.", no_args_is_help=True)
    panels.add(admin, token, None, "pt2hub admin token --name ci", "pt2hub admin token --name ada --admin")
    panels.add(admin, tokens, None, "pt2hub admin tokens")
    panels.add(admin, revoke, None, "pt2hub admin revoke ci", "pt2hub admin revoke 3")
    panels.add(admin, reindex, None, "pt2hub admin reindex")
    panels.add(admin, migrate, None, "pt2hub admin migrate")
    panels.add(admin, audit_keys, None, "pt2hub admin audit-keys", "pt2hub admin audit-keys --json")
    panels.add(admin, queue, None, "pt2hub admin queue")
    panels.add(admin, requeue, None, "pt2hub admin requeue 688d2e6fd6eb1e11")
    panels.add(admin, seed_history, None, "pt2hub admin seed-history --measurements 1000000")
    panels.add(admin, seed_demo, None, "pt2hub admin seed-demo")
    app.add_typer(admin, name="admin", rich_help_panel=panels.OPERATING)


def server_config() -> ServerConfig:
    """The settings of the server on this machine."""
    from pt2hub.server.config import ServerConfig

    return ServerConfig.from_environ(os.environ)


def token(
    *,
    name: Annotated[str, typer.Option(help="What the token is called in lists.")] = "admin",
    admin: Annotated[
        bool, typer.Option("--admin", help="It may set policies, and force alias moves that they refuse.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a token; it is shown this once."""
    from pt2hub.server.admin import create_token

    made = create_token(server_config(), name=name, admin=admin)
    emit(
        {"token": made, "name": name, "admin": admin},
        lambda out: out.print(made, markup=False),
        as_json=as_json,
    )


def tokens(*, as_json: AsJson = False) -> None:
    """List the tokens: who may publish and move aliases."""
    from pt2hub.server.admin import list_tokens

    found = list_tokens(server_config())
    emit({"tokens": found}, lambda out: _print_tokens(out, found), as_json=as_json)


def revoke(
    token: Annotated[str, typer.Argument(metavar="NAME|ID", help="As `pt2hub admin tokens` lists it.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Revoke a token, at once and for good."""
    from pt2hub.server.admin import revoke_token

    revoked = revoke_token(server_config(), token)
    words = f"Token {revoked.id} ({revoked.name}) is revoked."
    emit(revoked, lambda out: out.print(words, markup=False), as_json=as_json)


def reindex(*, as_json: AsJson = False) -> None:
    """Rebuild the database's rows from the manifests in storage."""
    from pt2hub.server.admin import reindex as rebuild

    counts = rebuild(server_config())
    lines = "\n".join(f"{name}: {count}" for name, count in counts.items())
    emit(counts, lambda out: out.print(lines, markup=False), as_json=as_json)


def migrate(*, as_json: AsJson = False) -> None:
    """Bring the database's schema up to date.

    `pt2hub up` does it by itself; `pt2hub api` and workers of other machines never do.
    """
    from pt2hub.server.admin import migrate as upgrade

    before, after = upgrade(server_config())
    changed = before != after
    words = (
        f"The schema was at revision {before or 'none'} and is at {after}."
        if changed
        else (f"The schema is at revision {after}, as this pt2hub needs it: nothing to do.")
    )
    document = {"before": before, "after": after, "changed": changed}
    emit(document, lambda out: out.print(words, markup=False), as_json=as_json)


def audit_keys(*, as_json: AsJson = False) -> None:
    """List artifacts that reuse code by an older program key.

    Exit code 1 where code may differ from the artifact's own program, or where nothing stored tells. To replace such an
    artifact, publish its version again: no code of an older key is reused.
    """
    from pt2hub.domain.key_audits import AT_RISK
    from pt2hub.server.admin import audit_keys as audit

    found = audit(server_config())
    emit({"artifacts": found}, lambda out: _print_findings(out, found), as_json=as_json)
    if any(item.certainty in AT_RISK for item in found):
        raise typer.Exit(_AT_RISK)


def queue(*, as_json: AsJson = False) -> None:
    """Inspect the queues, and builds that are tried again and again.

    OLDEST is how long the first of the queued builds has waited, SLOTS how many the live workers take at a time,
    MEASURING how many measuring jobs wait or run, for which the same slots are.
    """
    from pt2hub.server.admin import inspect_queues

    queues, repeated = inspect_queues(server_config())
    emit(
        {"targets": [_queue_document(item) for item in queues], "repeated": repeated},
        lambda out: _print_queues(out, queues, repeated),
        as_json=as_json,
    )


def requeue(
    build: Annotated[str, typer.Argument(metavar="ID", help="A build that runs.")], *, as_json: AsJson = False
) -> None:
    """Take a running build from its worker and queue it again.

    The attempt does not count as a failure, and what its worker still sends of it is refused.
    """
    from pt2hub.server.admin import requeue as take

    taken = take(server_config(), build)
    words = (
        f"Build {taken.id} is queued again, behind others of its priority; attempt {taken.attempt} is over."
    )
    emit(taken, lambda out: out.print(words, markup=False), as_json=as_json)


def seed_history(
    *,
    measurements: Annotated[int, typer.Option(min=1, max=100_000_000, help="So many figures.")] = 1_000_000,
    force: Annotated[bool, typer.Option("--force", help="Also beside models that are not made up.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fill a database with a made-up history, to try it at size.

    Its models are of the team `seeded`, a thousand figures each; none of their artifacts can be pulled, and no command
    takes them away again. A database with other models is refused.
    """
    from pt2hub.cli.output import note
    from pt2hub.server.admin import seed_history as seed

    made = seed(server_config(), measurements, force=force, say=note)
    words = (
        f"{made.measurements:,} made-up figures of {made.versions:,} versions of {made.models:,} models in "
        f"{made.series:,} series. See them: pt2hub history seeded/model-00001"
    )
    emit(made, lambda out: out.print(words, markup=False), as_json=as_json)


def seed_demo(
    *,
    beside: Annotated[
        bool, typer.Option("--beside", help="Also beside models that are not made up.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fill a server with a made-up year, to look at its pages.

    Its models are of the teams `demo-vision`, `demo-text`, `demo-audio` and `demo-ranking`: 20 models, 400 versions, GPUs
    and CPUs, regressions, failures. None of their artifacts can be pulled, and no command takes them away again. A server
    with other models is refused.
    """
    from pt2hub.cli.output import note
    from pt2hub.server.admin import seed_demo as seed

    made = seed(server_config(), beside=beside, say=note)
    words = (
        f"{made.models} made-up models with {made.versions} versions, {made.builds:,} builds and {made.measurements:,} "
        f"figures, {made.changes} changes among them. See them: pt2hub models demo-"
    )
    emit(made, lambda out: out.print(words, markup=False), as_json=as_json)


def _print_findings(out: Console, found: Sequence[KeyFinding]) -> None:
    from pt2hub.cli.tables import print_table

    if not found:
        out.print("No artifact reuses code by an older program key: nothing to do.", markup=False)
        return
    rows = [
        (item.version, item.target, str(item.key_schema), str(item.certainty), item.artifact[:19], item.why)
        for item in found
    ]
    print_table(out, ("VERSION", "TARGET", "KEY SCHEMA", "CODE", "ARTIFACT", "WHY"), rows)


def _queue_document(item: QueueStatistics) -> dict[str, Any]:
    document: dict[str, Any] = encode(item)
    return document | {"live_workers": item.live}


def _print_queues(out: Console, queues: Sequence[QueueStatistics], repeated: Sequence[RepeatedBuild]) -> None:
    from pt2hub.cli.tables import print_table

    headings = ("TARGET", "QUEUED", "OLDEST", "RUNNING", "SLOTS", "WORKERS", "LOST", "MEASURING")
    if queues:
        print_table(out, headings, [_queue_row(item) for item in queues])
    else:
        out.print("No target is known yet: nothing was published, and no worker ever came.", markup=False)
    if repeated:
        out.print("\nBuilds that are not over after several attempts:", markup=False)
        columns = ("BUILD", "VERSION", "TARGET", "STATE", "ATTEMPT", "FAILURES", "LAST", "WORKER", "KIND")
        print_table(out, columns, [_repeated_row(item) for item in repeated])


def _queue_row(item: QueueStatistics) -> tuple[str, ...]:
    oldest = duration(item.oldest_seconds) if item.queued else NOTHING
    measuring = item.measuring_queued + item.measuring_running
    counts = (item.running, item.slots, item.live, item.workers.get("lost", 0), measuring)
    return item.target, str(item.queued), oldest, *map(str, counts)


def _repeated_row(item: RepeatedBuild) -> tuple[str, ...]:
    version, counts = f"{item.model}@{item.number}", (str(item.attempt), str(item.failures))
    stands = (item.id, version, item.target, item.state)
    return *stands, *counts, item.last or NOTHING, item.worker or NOTHING, item.kind


def _print_tokens(out: Console, found: Sequence[TokenInfo]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (
            str(item.id),
            item.name,
            "yes" if item.admin else NOTHING,
            when(item.created_at),
            when(item.last_used_at),
            f"revoked {when(item.revoked_at)}" if item.revoked_at else NOTHING,
        )
        for item in found
    ]
    if rows:
        print_table(out, ("ID", "NAME", "ADMIN", "CREATED", "LAST USED", "REVOKED"), rows)
    else:
        out.print("No tokens yet. Make one: pt2hub admin token --name ci", markup=False)
