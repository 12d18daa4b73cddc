"""Commands that list models, versions, builds, workers and targets."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, is_json
from pt2hub.domain.builds import BuildKind, BuildState  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.rendering.quantities import format_bounded, format_bytes
from pt2hub.rendering.times import NOTHING, format_local_time, format_span
from pt2hub.wire.responses import MAX_COUNTED_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from pt2hub.cli.tables import Cell
    from pt2hub.client.client import Client
    from pt2hub.wire.responses import BuildView, ModelView, TargetView, VersionSummary
    from pt2hub.wire.usage import UsageView
    from pt2hub.wire.workers import WorkerView

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of entries, newest first.")]


@panels.command(
    panels.READING, "pt2hub models", "pt2hub models resnet --json", "pt2hub models --label owner=search"
)
def models(
    search: Annotated[
        str | None, typer.Argument(help="List only models with this text in their name.")
    ] = None,
    *,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=VALUE]", help="List only models with this label of their own; can be repeated."
        ),
    ] = None,
) -> None:
    """List models, their versions and aliases.

    READY is the newest ready version, which the model's name without a version refers to.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.models.list(search, labels=label or ())
        elsewhere = _of_versions(client, label) if label and not found and not is_json() else ""
    emit({"models": found}, lambda out: _print_models(out, found, search, label, elsewhere))


@panels.command(
    panels.READING,
    "pt2hub versions vision/resnet18 --limit 5",
    "pt2hub versions vision/resnet18 --where state=ready --where since=7d",
    "pt2hub versions --where git.sha=4f1c8a0e9d3b7c65f2a1908e7d6c5b4a39281706",
    "pt2hub versions --where model=vision/ --where alias=prod",
)
def versions(
    model: Annotated[str | None, typer.Argument(help="team/name; all models if omitted.")] = None,
    *,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]",
            help="List only versions that meet this condition; can be repeated. Names are model, alias, target, state, "
            "publisher, since, until and labels.",
        ),
    ] = None,
    limit: Limit = 20,
) -> None:
    """List the versions of a model, or of all models, newest first.

    A name that is no field is a label: owner=search has this value, owner alone has any.
    Times are ages (12h, 7d, 2w) or ISO 8601.
    """
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    name = model_name(model) if model else None
    with Client() as client:
        conditions = [*([f"model={name}"] if name else ()), *(where or ())]
        found = (
            client.versions.list(name, limit=limit + 1)
            if name and not where
            else client.versions.search(*conditions, limit=limit + 1)
        )
    shown, more = found[:limit], len(found) > limit
    emit(
        {"versions": shown, "more": more},
        lambda out: _print_versions(out, shown, more=more, of_one=name is not None, chosen=bool(where)),
    )


@panels.command(
    panels.READING,
    "pt2hub builds --state failed",
    "pt2hub builds vision/resnet18@3",
    "pt2hub builds 688d2e6fd6eb1e11",
)
def builds(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="ID|MODEL[@REF]", help="A build to show, or a model or version to list builds of."
        ),
    ] = None,
    *,
    state: Annotated[BuildState | None, typer.Option(help="Only builds in this state.")] = None,
    target: Annotated[str | None, typer.Option(help="Only for this target.")] = None,
    kind: Annotated[BuildKind | None, typer.Option(help="Only builds, or only measuring jobs.")] = None,
    limit: Limit = 20,
) -> None:
    """List the latest builds, or show one with its attempts and steps.

    The steps shown are those of the latest attempt.
    KIND is build, or measure for a measuring job, which benchmarks an artifact.
    """
    from pt2hub.cli.references import NO_BUILD, add_hint, subject_of
    from pt2hub.client.builds.progress import print_build
    from pt2hub.client.client import Client

    with Client() as client:
        if what and "/" not in what:
            if state or target or kind:
                raise click.UsageError(
                    "--state, --target and --kind filter a list; they cannot be combined with a build's id."
                )
            with add_hint(NO_BUILD):
                build = client.builds.get(what)
            emit(build, lambda out: print_build(out, build))
            return
        model, number = subject_of(client, what) if what else (None, None)
        found = client.builds.list(
            model, number=number, state=state, target=target, kind=kind, limit=limit + 1
        )
    shown, more = found[:limit], len(found) > limit
    emit({"builds": shown, "more": more}, lambda out: _print_builds(out, shown, more=more))


@panels.command(panels.READING, "pt2hub workers", "pt2hub workers --all --json")
def workers(
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Include workers that left or were lost within the last day.")
    ] = False,
) -> None:
    """List workers and what each is doing.

    SLOTS is the number of running builds out of the most that the worker runs at a time.
    ISOLATION is how it confines models' code: in a sandbox, only in a separate process, or
    not at all because it runs none.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.workers.list(gone=every)
    emit({"workers": found}, lambda out: _print_workers(out, found, every=every))


@panels.command(panels.READING, "pt2hub targets")
def targets() -> None:
    """List the targets that workers offer or offered, and their queues.

    SLOTS is how many builds and measuring jobs the live workers run at a time.
    SINCE is when the oldest queued build was queued.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.targets.list()
    emit({"targets": found}, lambda out: _print_targets(out, found))


@panels.command(panels.READING, "pt2hub usage", "pt2hub usage vision --json")
def usage(
    team: Annotated[str | None, typer.Argument(help="Only this team; all where omitted.")] = None,
) -> None:
    """List what teams use, and the limits of it.

    STORED is the size of the blobs that a team's versions, artifacts and logs refer to.
    BUILDS are those that are queued or running, measuring jobs included.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.usage.get(team)
    emit(found, lambda out: _print_usage(out, found))


def _print_usage(out: Console, found: UsageView) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (
            item.team,
            *map(str, (item.models, item.versions, item.artifacts)),
            _limited(item.stored_bytes, found.max_bytes, format_bytes),
            _limited(item.builds, found.max_builds, str),
        )
        for item in found.teams
    ]
    empty = "No models yet. To publish one: pt2hub publish SPEC --wait"
    print_table(out, ("TEAM", "MODELS", "VERSIONS", "ARTIFACTS", "STORED", "BUILDS"), rows, empty=empty)


def _limited(used: int, most: int, shown: Callable[[int], str]) -> str:
    return f"{shown(used)} of {shown(most)}" if most else shown(used)


def _of_versions(client: Client, labels: Sequence[str]) -> str:
    """Return the command that lists the versions with labels that no model itself has; empty if no version has them."""
    from pt2hub.domain.version_filters import FIELDS, LABEL_PREFIX
    from pt2hub.errors import InvalidInput

    named = [f"{LABEL_PREFIX}{text}" if text.partition("=")[0].strip() in FIELDS else text for text in labels]
    try:
        found = client.versions.search(*named, limit=1)
    except InvalidInput:  # no version has such a label either
        return ""
    return (
        shlex.join(["pt2hub", "versions", *(part for text in named for part in ("--where", text))])
        if found
        else ""
    )


def _print_models(
    out: Console, found: list[ModelView], search: str | None, labels: list[str] | None, elsewhere: str
) -> None:
    """Print models.

    Args:
        elsewhere: Command that lists the versions with the labels; empty if there are none.
    """
    from pt2hub.cli.tables import print_table

    empty = (
        f"No model matches, but versions have such labels. To list them: {elsewhere}"
        if elsewhere
        else "No model matches. To list all models: pt2hub models"
        if labels
        else f"No model has {search!r} in its name. To list all models: pt2hub models"
        if search
        else "No models yet. To publish one: pt2hub publish SPEC --wait (see pt2hub publish --help)"
    )
    headings = ("MODEL", "VERSIONS", "NEWEST", "READY", "ALIASES", "CREATED")
    print_table(out, headings, [_model_row(item) for item in found], empty=empty)


def _model_row(model: ModelView) -> tuple[Cell, ...]:
    aliases = [
        f"{name}={number}{' damaged' * (name in model.damaged)}"
        for name, number in sorted(model.aliases.items())
    ]
    newest, ready = (str(number or NOTHING) for number in (model.newest, model.newest_ready))
    return (
        model.name,
        format_bounded(model.versions, MAX_COUNTED_VERSIONS),
        newest,
        ready,
        aliases,
        format_local_time(model.created_at),
    )


def _print_versions(
    out: Console, found: Sequence[VersionSummary], *, more: bool, of_one: bool, chosen: bool
) -> None:
    """Print versions.

    Args:
        of_one: Whether all are of one model, which is not repeated.
        chosen: Whether there were conditions.
    """
    from pt2hub.cli.tables import print_table

    empty = (
        "No version matches. To list a model's versions: pt2hub versions MODEL"
        if chosen
        else "No versions yet. To publish one: pt2hub publish SPEC --wait"
    )
    headings = ("VERSION", "READINESS", "ALIASES", "TARGETS", "CREATED")
    rows = [_version_row(item, of_one=of_one) for item in found]
    print_table(out, headings, rows, empty=empty, more=more)


def _version_row(version: VersionSummary, *, of_one: bool) -> tuple[Cell, ...]:
    from pt2hub.rendering.sheets import measurement_suffix

    targets = [
        f"{target} {state}{measurement_suffix(version.measurements.get(target))}"
        for target, state in version.targets.items()
    ]
    return (
        str(version.number) if of_one else f"{version.model}@{version.number}",
        f"{version.readiness}{', yanked' * bool(version.yanked)}{', damaged' * bool(version.damaged)}",
        version.aliases,
        targets,
        format_local_time(version.created_at),
    )


def _print_builds(out: Console, found: list[BuildView], *, more: bool) -> None:
    from pt2hub.cli.tables import print_table

    empty = "No builds match. To queue builds: pt2hub publish SPEC"
    headings = ("BUILD", "VERSION", "TARGET", "STATE", "TOOK", "CREATED", "KIND", "NOTE")
    print_table(out, headings, [_build_row(item) for item in found], empty=empty, more=more)


def _build_row(build: BuildView) -> tuple[Cell, ...]:
    from pt2hub.rendering.sheets import state_text

    duration = format_span(build.started_at, build.finished_at)
    created, version = format_local_time(build.created_at), f"{build.model}@{build.number}"
    shown = (build.id, version, build.target, state_text(build), duration, created)
    return *shown, build.kind, _note(build)


def _note(build: BuildView) -> str:
    """Return what is unusual about a build: error, wait reason, priority, further attempts, missing measurements."""
    from pt2hub.rendering.sheets import attempts, measurement
    from pt2hub.rendering.waits import format_note

    notes = [
        str((build.error or {}).get("code") or format_note(build)),
        f"priority {build.priority}" if build.priority else "",
        attempts(build),
        measurement(build.measurement),
    ]
    return "; ".join(note for note in notes if note)


def _print_workers(out: Console, found: list[WorkerView], *, every: bool) -> None:
    from pt2hub.cli.tables import print_table

    more = "" if every else " To include workers that left within the last day: pt2hub workers --all"
    empty = (
        "No workers are ready; a worker that was just started takes a few seconds. "
        f"To start one: pt2hub up, or pt2hub worker.{more}"
    )
    columns = "WORKER TARGET STATE DOING SLOTS ISOLATION VERSION HOST"
    headings = (*columns.split(), "LAST SEEN", "NOTE")
    print_table(out, headings, [_worker_row(item) for item in found], empty=empty)


def _worker_row(worker: WorkerView) -> tuple[Cell, ...]:
    from pt2hub.rendering.sheets import doing, skew

    at_work = [f"{doing(item)} {item.step or 'starting'}" for item in worker.builds]
    slots = f"{len(worker.builds)}/{worker.concurrency}"
    known = (worker.isolation, worker.version or NOTHING, worker.host or NOTHING)
    seen = format_local_time(worker.last_seen)
    return worker.id, worker.target, worker.state, at_work, slots, *known, seen, skew(worker)


def _print_targets(out: Console, found: list[TargetView]) -> None:
    from pt2hub.cli.tables import print_table

    empty = "No targets yet. To start a worker: pt2hub up, or pt2hub worker"
    headings = ("TARGET", "WORKERS", "SLOTS", "RUNNING", "QUEUED", "SINCE", "LAST SEEN")
    print_table(out, headings, [_target_row(item) for item in found], empty=empty)


def _target_row(target: TargetView) -> tuple[Cell, ...]:
    counts = (target.live_workers, target.slots, target.running, target.queued)
    return (
        target.name,
        *map(str, counts),
        format_local_time(target.oldest),
        format_local_time(target.last_seen),
    )
