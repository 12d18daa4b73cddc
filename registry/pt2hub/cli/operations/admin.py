"""`pt2hub admin`: operator commands on the server's machine. They import server code only when they run."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.access.lifetimes import parse_lifetime
from pt2hub.cli.access.token_tables import is_live, print_tokens
from pt2hub.cli.operations.audit_log import audit_log
from pt2hub.cli.operations.backup import backup, restore
from pt2hub.cli.operations.people import assign_role, end_person, people, remove_role, roles
from pt2hub.cli.operations.storage import fsck, heal, scrub
from pt2hub.cli.operations.trust import distrust, trust, trusted
from pt2hub.cli.output import emit, note, print_text, shows_progress
from pt2hub.cli.retention.collection import accept, collect
from pt2hub.domain.codec import encode
from pt2hub.domain.tokens import DEFAULT_SCOPES, EVERY_MODEL, Scope
from pt2hub.errors import InvalidInput
from pt2hub.rendering.quantities import format_count, format_duration
from pt2hub.rendering.times import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.domain.key_audits import KeyFinding
    from pt2hub.domain.statistics import QueueStatistics, RepeatedBuild
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.worker_access import WorkerRole


_LOST = 1
"""Exit code of a reindex that met damage."""
_AT_RISK = 1
"""Exit code of an audit with findings to act on."""


def register(app: typer.Typer) -> None:
    """Add the admin commands to the app."""
    admin = typer.Typer(
        help="Operator commands, for the server's machine.", no_args_is_help=True, suggest_commands=False
    )
    panels.add(
        admin,
        token,
        tokens,
        revoke,
        trust,
        trusted,
        distrust,
        assign_role,
        roles,
        remove_role,
        people,
        end_person,
        audit_log,
        backup,
        restore,
        reindex,
        scrub,
        fsck,
        heal,
        collect,
        accept,
        migrate,
        audit_keys,
        queue,
        requeue,
        worker_role,
        worker_policy,
    )
    app.add_typer(admin, name="admin", rich_help_panel=panels.OPERATING)


def server_config() -> ServerConfig:
    """Return the settings of the server on this machine."""
    from pt2hub.server.config import ServerConfig

    return ServerConfig.from_environ(os.environ)


@panels.command(
    None,
    "pt2hub admin token --name ada --admin",
    "pt2hub admin token --name ci --scope publish --models 'vision/*' --expires 90d",
)
def token(
    *,
    name: Annotated[str, typer.Option(help="Name of the token in lists.")] = "admin",
    admin: Annotated[
        bool,
        typer.Option(
            "--admin", help="Let the token set policies, and force alias moves that a policy refuses."
        ),
    ] = False,
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="An action to allow; repeat it for more. All but admin where omitted."),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Models to allow it for, such as 'vision/*'. All where omitted."
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Time until it expires, such as 90d or 12h.")
    ] = None,
) -> None:
    """Create a token; it is shown only once."""
    from pt2hub.server.admin import create_token

    lasting = parse_lifetime(expires, "--expires") if expires else None
    scopes, patterns = scope or sorted(DEFAULT_SCOPES), models or [EVERY_MODEL]
    made = create_token(
        server_config(), name=name, admin=admin, scopes=scopes, patterns=patterns, lasting=lasting
    )
    _warn_of_namesakes(name)
    document = {"token": made, "name": name, "admin": admin or Scope.ADMIN in scopes}
    emit({**document, "scopes": scopes, "patterns": patterns}, lambda out: out.print(made))


def _warn_of_namesakes(name: str) -> None:
    """Say if several valid tokens of services have a name; an operator who lost one must not be refused here."""
    from pt2hub.server.admin import list_tokens

    same = [item for item in list_tokens(server_config()) if item.name == name and is_live(item)]
    if len(same) > 1:
        ids = ", ".join(str(item.id) for item in same)
        note(
            f"pt2hub: warning: {len(same)} valid tokens have the name {name} (ids {ids}); records cannot tell them apart.",
            "  To end one that is no longer used: pt2hub admin revoke ID",
        )


@panels.command(None, "pt2hub admin tokens")
def tokens() -> None:
    """List the tokens, which allow publishing and moving aliases."""
    from pt2hub.server.admin import list_tokens

    found = list_tokens(server_config())
    emit({"tokens": found}, lambda out: print_tokens(out, found))


@panels.command(None, "pt2hub admin revoke ci", "pt2hub admin revoke 3")
def revoke(
    token: Annotated[
        str,
        typer.Argument(metavar="NAME|ID", help="Name or id of the token, as `pt2hub admin tokens` lists it."),
    ],
) -> None:
    """Revoke a token, immediately and permanently."""
    from pt2hub.server.admin import revoke_token

    revoked = revoke_token(server_config(), token)
    text = f"Token {revoked.id} ({revoked.name}) was revoked."
    emit(revoked, lambda out: out.print(text))


@panels.command(None, "pt2hub admin reindex")
def reindex(
    *,
    accept_losses: Annotated[
        bool,
        typer.Option(
            "--accept-losses", help="Let the collector remove what only unreadable documents refer to."
        ),
    ] = False,
) -> None:
    """Rebuild the database's rows from the storage.

    Manifests have the artifacts, the journal everything else but tokens and sessions. Existing rows stay. While anything
    is unreadable, no blob is collected: heal it and reindex again. The exit code is 1 if anything is unreadable or damaged.
    """
    from pt2hub.client.output import announce
    from pt2hub.server.admin import list_tokens
    from pt2hub.server.admin import reindex as rebuild

    announce("Reading the storage's manifests and journal...", shows_progress())
    report = rebuild(server_config(), accept_losses=accept_losses)
    has_tokens = any(is_live(item) for item in list_tokens(server_config()))
    emit(report, lambda out: _print_reindex(out, report, accepted=accept_losses, has_tokens=has_tokens))
    if report["damaged"] or (report["unreadable"] and not accept_losses):
        raise typer.Exit(_LOST)


@panels.command(None, "pt2hub admin migrate")
def migrate() -> None:
    """Upgrade the database schema.

    `pt2hub up` does this automatically; `pt2hub api` and separate workers never do.
    """
    from pt2hub.server.admin import migrate as upgrade

    before, after = upgrade(server_config())
    changed = before != after
    text = (
        f"Upgraded the schema from revision {before or 'none'} to {after}."
        if changed
        else (f"The schema is up to date at revision {after}: nothing to do.")
    )
    document = {"before": before, "after": after, "changed": changed}
    emit(document, lambda out: out.print(text))


@panels.command(None, "pt2hub admin audit-keys", "pt2hub admin audit-keys --json")
def audit_keys() -> None:
    """List artifacts that reused code under an older program key.

    The exit code is 1 if reused code may differ from the artifact's own program, or if the stored data cannot
    rule it out. To replace such an artifact, publish its version again; code of older keys is not reused.
    """
    from pt2hub.domain.key_audits import AT_RISK
    from pt2hub.server.admin import audit_keys as audit

    found = audit(server_config())
    emit({"artifacts": found}, lambda out: _print_findings(out, found))
    if any(item.certainty in AT_RISK for item in found):
        raise typer.Exit(_AT_RISK)


@panels.command(None, "pt2hub admin queue")
def queue() -> None:
    """Show the queues, and builds with repeated attempts.

    OLDEST is how long the oldest queued build has waited, SLOTS how many builds the live workers run at a time,
    MEASURING how many measuring jobs are queued or running; they use the same slots.
    """
    from pt2hub.server.admin import inspect_queues

    queues, repeated = inspect_queues(server_config())
    emit(
        {"targets": [_queue_document(item) for item in queues], "repeated": repeated},
        lambda out: _print_queues(out, queues, repeated),
    )


@panels.command(None, "pt2hub admin requeue 688d2e6fd6eb1e11")
def requeue(build: Annotated[str, typer.Argument(metavar="ID", help="Id of a running build.")]) -> None:
    """Take a running build from its worker and queue it again.

    The attempt does not count as a failure, and anything that its worker still sends is refused.
    """
    from pt2hub.server.admin import requeue as requeue_build

    requeued = requeue_build(server_config(), build)
    text = f"Build {requeued.id} is queued again, behind others of its priority; attempt {requeued.attempt} has ended."
    emit(requeued, lambda out: out.print(text))


@panels.command(None, "pt2hub admin worker-role --apply", "pt2hub admin worker-role", name="worker-role")
def worker_role(
    *,
    name: Annotated[str, typer.Option(help="Name of the role.")] = "pt2hub_worker",
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Create the role and grant its rights, instead of printing the SQL."),
    ] = False,
    new_password: Annotated[
        bool, typer.Option("--new-password", help="With --apply: set another password of an existing role.")
    ] = False,
) -> None:
    """Create the database role of workers, or print the SQL that does.

    The role can claim builds, send heartbeats, write logs and publish; it can neither read tokens nor move aliases or
    delete versions. Later upgrades of the schema grant its rights anew.
    """
    from pt2hub.server.admin import apply_worker_role, worker_role_script

    if apply:
        applied = apply_worker_role(server_config(), name, new_password=new_password)
        emit(applied, lambda out: _print_role(out, applied))
    elif new_password:
        raise InvalidInput(
            "--new-password requires --apply",
            where="--new-password",
            hint="The printed SQL sets no password.",
        )
    else:
        script = worker_role_script(server_config(), name)
        emit({"role": name, "sql": script}, lambda _: print_text(script))


@panels.command(
    None,
    "pt2hub admin worker-policy --no-overwrite",
    "pt2hub admin worker-policy --principal arn:aws:iam::123456789012:user/worker",
    name="worker-policy",
)
def worker_policy(
    *,
    principal: Annotated[
        str | None,
        typer.Option(
            metavar="ARN",
            help="Print a policy of the bucket for this user or role, instead of one of the user's or role's own.",
        ),
    ] = None,
    no_overwrite: Annotated[
        bool,
        typer.Option(
            "--no-overwrite", help="Also forbid overwriting objects, by conditions that only AWS knows."
        ),
    ] = False,
) -> None:
    """Print the S3 policy of workers' credentials, as JSON.

    It lets them read and create blobs and manifests below the prefix of PT2HUB_STORAGE, and delete nothing.
    """
    from pt2hub.server.blobs.s3.worker_policy import worker_policy as policy_of

    policy = policy_of(server_config().storage, principal, overwriting=not no_overwrite)
    emit(policy, lambda _: print_text(json.dumps(policy, indent=2)))


def _print_reindex(out: Console, report: dict[str, Any], *, accepted: bool, has_tokens: bool) -> None:
    manifests, artifacts = (
        format_count(report["manifests"], "manifest"),
        format_count(report["artifacts"], "artifact"),
    )
    out.print(f"Read {manifests} of {artifacts}, and the journal.")
    if report["added"] or report["journal"]:
        out.print(
            f"Added {format_count(report['added'], 'artifact')}, and changed {format_count(report['journal'], 'row')} from the journal."
        )
    else:
        out.print("The database lacked nothing.")
    if report["deleted"]:
        out.print(f"deleted again: {', '.join(report['deleted'])}")
    for name in ("unreadable", "damaged"):
        for digest, reason in report[name].items():
            out.print(f"{name}: {digest}: {reason}")
    if report["damaged"]:
        out.print("Replace what is damaged: pt2hub admin heal")
    if report["unreadable"] and not accepted:
        out.print(
            "No blob is collected until a reindex can read everything; to give up what it cannot: "
            "pt2hub admin reindex --accept-losses"
        )
    if not has_tokens:
        out.print(
            "No token is valid: tokens and sessions are not in the storage. Create one: pt2hub admin token --admin"
        )


def _print_role(out: Console, applied: WorkerRole) -> None:
    done = "was created with" if applied.created else "exists and now has"
    out.print(f"Role {applied.role} {done} the rights of workers and no others.")
    if applied.database_url:
        out.print("Set this for workers; the password is shown only once:")
        print_text(f"PT2HUB_DATABASE_URL={applied.database_url}")


def _print_findings(out: Console, found: Sequence[KeyFinding]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (item.version, item.target, str(item.key_schema), str(item.certainty), item.artifact[:19], item.why)
        for item in found
    ]
    empty = "No artifact reuses code under an older program key: nothing to do."
    print_table(out, ("VERSION", "TARGET", "KEY SCHEMA", "CODE", "ARTIFACT", "WHY"), rows, empty=empty)


def _queue_document(item: QueueStatistics) -> dict[str, Any]:
    document: dict[str, Any] = encode(item)
    return document | {"live_workers": item.live}


def _print_queues(out: Console, queues: Sequence[QueueStatistics], repeated: Sequence[RepeatedBuild]) -> None:
    from pt2hub.cli.tables import print_table

    headings = ("TARGET", "QUEUED", "OLDEST", "RUNNING", "SLOTS", "WORKERS", "LOST", "MEASURING")
    empty = "No targets yet: nothing was published, and no worker has registered."
    print_table(out, headings, [_queue_row(item) for item in queues], empty=empty)
    if repeated:
        out.print("\nUnfinished builds with several attempts:")
        columns = ("BUILD", "VERSION", "TARGET", "STATE", "ATTEMPT", "FAILURES", "LAST", "WORKER", "KIND")
        print_table(out, columns, [_repeated_row(item) for item in repeated])


def _queue_row(item: QueueStatistics) -> tuple[str, ...]:
    oldest = format_duration(item.oldest_seconds) if item.queued else NOTHING
    measuring = item.measuring_queued + item.measuring_running
    counts = (item.running, item.slots, item.live, item.workers.get("lost", 0), measuring)
    return item.target, str(item.queued), oldest, *map(str, counts)


def _repeated_row(item: RepeatedBuild) -> tuple[str, ...]:
    version, counts = f"{item.model}@{item.number}", (str(item.attempt), str(item.failures))
    status = (item.id, version, item.target, item.state)
    return *status, *counts, item.last or NOTHING, item.worker or NOTHING, item.kind
