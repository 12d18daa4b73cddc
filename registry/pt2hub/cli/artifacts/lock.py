"""`pt2hub lock` and `pt2hub sync`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import collect_warnings, emit, shows_progress
from pt2hub.domain.codec import encode
from pt2hub.errors import InvalidInput
from pt2hub.rendering.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.client.client import Client
    from pt2hub.client.lock.declarations import Project
    from pt2hub.client.lock.locks import LockUpdate
    from pt2hub.domain.locks import Lock, LockedModel

_ALL = "all"
"""Value of --targets for every target of each version."""

LockFile = Annotated[
    Path | None,
    typer.Option(
        "--lock",
        metavar="FILE",
        help="The lock file; by default pt2hub.lock in this directory or the nearest above with one, or with a "
        "declaration in pyproject.toml.",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--targets", metavar="TARGET,...", help="Only these targets, separated by commas."),
]


@panels.command(
    panels.USING,
    "pt2hub lock vision/resnet18@prod",
    "pt2hub lock --upgrade vision/resnet18",
    "pt2hub lock --targets torch2.11-cu130-sm90,torch2.13-cpu-x86_64_v3",
    "pt2hub lock --check",
)
def lock(  # noqa: PLR0913  # each is an option by name
    references: Annotated[
        list[str] | None,
        typer.Argument(metavar="[REF]...", help="References to add, if pyproject.toml declares none."),
    ] = None,
    *,
    upgrade: Annotated[
        list[str] | None,
        typer.Option(
            "--upgrade", "-P", metavar="NAME", help="Resolve this reference, or all of this model, anew."
        ),
    ] = None,
    upgrade_all: Annotated[
        bool, typer.Option("--upgrade-all", "-U", help="Resolve every reference anew.")
    ] = False,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="REF", help="Remove a reference from the lock file."),
    ] = None,
    targets: Targets = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; fail if the lock file does not match pyproject.toml."),
    ] = False,
    path: LockFile = None,
) -> None:
    """Pin references to versions and digests in pt2hub.lock.

    The references are the `models` of the table tool.pt2hub in pyproject.toml, or else those in the lock file. Versions
    that are locked stay as they are, also when an alias has moved, until they are upgraded.
    """
    from pt2hub.client.artifacts.yanks import YankedVersionWarning
    from pt2hub.client.client import Client
    from pt2hub.client.lock.declarations import Project
    from pt2hub.client.lock.locker import Upgrade

    project = Project.find(path)
    with Client() as client, collect_warnings(YankedVersionWarning) as warned:
        if check:
            _refuse_changes("--check", references, upgrade, upgrade_all, remove, targets)
            found = client.locks.check(project)
            emit(_describe(project, found), lambda out: _print_state(out, project, found))
            return
        update = client.locks.update(
            project,
            references or (),
            removed=remove or (),
            targets=split_targets(targets),
            upgrade=Upgrade(tuple(upgrade or ()), every=upgrade_all),
        )
    document = _describe(project, update.after) | {
        "written": update.written,
        "changes": _changes(update),
        "warnings": warned,
    }
    emit(document, lambda out: _print_update(out, project, update))


@panels.command(
    panels.USING, "pt2hub sync", "pt2hub sync --frozen", "pt2hub sync --frozen --targets torch2.11-cu130-sm90"
)
def sync(
    *,
    frozen: Annotated[
        bool,
        typer.Option(
            "--frozen",
            help="Take the lock file as it is: fail if it does not match pyproject.toml, and ask no server for versions.",
        ),
    ] = False,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--targets",
            metavar="TARGET,...",
            help="Pull for these targets, separated by commas, instead of for this machine.",
        ),
    ] = None,
    path: LockFile = None,
) -> None:
    """Bring everything that is locked into the cache.

    Without --frozen, references that were declared since are locked first. Files that are in the cache are not
    downloaded again, so that a synced machine needs no server.
    """
    from pt2hub.client.artifacts.yanks import YankedVersionWarning
    from pt2hub.client.client import Client
    from pt2hub.client.lock.declarations import Project
    from pt2hub.client.lock.locker import Upgrade

    project = Project.find(path)
    with Client() as client, collect_warnings(YankedVersionWarning) as warned:
        if frozen:
            locked = client.locks.check(project)
        else:
            locked = client.locks.update(project, upgrade=Upgrade()).after
        pulled = _pull(client, project, locked, split_targets(targets) or ())
    document = _describe(project, locked) | {
        "artifacts": [_describe_artifact(*item) for item in pulled],
        "warnings": warned,
    }
    emit(document, lambda out: _print_pulled(out, pulled))


def split_targets(given: list[str] | None) -> tuple[str, ...] | None:
    """Return the targets of an option; None if it was left out, empty for all.

    Raises:
        InvalidInput: The option names no target.
    """
    if given is None:
        return None
    names = tuple(name.strip() for text in given for name in text.split(",") if name.strip())
    if not names:
        raise InvalidInput("No target is named", where="--targets", hint="Name targets, or all.")
    return () if names == (_ALL,) else names


def _pull(
    client: Client, project: Project, locked: Lock, targets: tuple[str, ...]
) -> list[tuple[LockedModel, LocalArtifact]]:
    with closing(client.locks.puller(project.lock, lock=locked)) as puller:
        return list(puller.pull_all(targets, progress=shows_progress()))


def _refuse_changes(option: str, *given: object) -> None:
    if any(given):
        raise InvalidInput(
            f"{option} changes nothing", where=option, hint="Leave out references and the other options."
        )


def _describe(project: Project, lock: Lock) -> dict[str, Any]:
    return {"lock": str(project.lock), **encode(lock)}


def _describe_artifact(locked: LockedModel, artifact: LocalArtifact) -> dict[str, Any]:
    return {
        "reference": locked.reference,
        "version": locked.version,
        "target": artifact.config.target.name,
        "artifact": artifact.manifest_digest,
        "code": str(artifact.code),
        "weights": str(artifact.weights),
    }


def _changes(update: LockUpdate) -> list[dict[str, Any]]:
    """Return what changed, by reference."""
    before = {item.reference: item for item in update.before.models} if update.before else {}
    after = {item.reference: item for item in update.after.models}
    return [
        {
            "reference": name,
            "before": before[name].version if name in before else None,
            "after": after[name].version if name in after else None,
        }
        for name in sorted(before | after)
        if before.get(name) != after.get(name)
    ]


def _print_update(out: Console, project: Project, update: LockUpdate) -> None:
    for change in _changes(update):
        name, before, after = change["reference"], change["before"], change["after"]
        if before is None:
            out.print(f"Added {name}  version {after}")
        elif after is None:
            out.print(f"Removed {name}  version {before}")
        elif before != after:
            out.print(f"Updated {name}  version {before} -> {after}")
        else:
            out.print(f"Updated {name}  version {after}, other artifacts")
    _print_state(out, project, update.after)


def _print_state(out: Console, project: Project, lock: Lock) -> None:
    count = sum(len(item.artifacts) for item in lock.models)
    locked = f"{format_count(len(lock.models), 'reference')}, {format_count(count, 'artifact')}"
    out.print(f"{_shown(project)} is up to date: {locked}")


def _shown(project: Project) -> str:
    from pathlib import Path as CurrentPath

    try:
        return str(project.lock.relative_to(CurrentPath.cwd()))
    except ValueError:
        return str(project.lock)


def _print_pulled(out: Console, pulled: list[tuple[LockedModel, LocalArtifact]]) -> None:
    for locked, artifact in pulled:
        size = artifact.code.stat().st_size + artifact.weights.stat().st_size
        out.print(
            f"{locked.reference}  version {locked.version}  {artifact.config.target}  {format_bytes(size)}"
        )
    out.print(f"{format_count(len(pulled), 'artifact')} in the cache")
