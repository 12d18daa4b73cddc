"""Commands that list: models, versions, builds, workers, targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit
from pt2hub.cli.words import NOTHING, took, when
from pt2hub.domain.builds import BuildKind, BuildState  # noqa: TC001  # typer reads annotations when it runs

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.cli.tables import Cell
    from pt2hub.client.client import Client
    from pt2hub.wire.shapes import BuildView, ModelView, TargetView, VersionSummary
    from pt2hub.wire.workers import WorkerView

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, the newest.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    panels.add(app, models, panels.READING, "pt2hub models", "pt2hub models resnet --json")
    panels.add(app, versions, panels.READING, "pt2hub versions vision/resnet18 --limit 5")
    panels.add(
        app,
        builds,
        panels.READING,
        "pt2hub builds --state failed",
        "pt2hub builds vision/resnet18@3",
        "pt2hub builds 688d2e6fd6eb1e11",
    )
    panels.add(app, workers, panels.READING, "pt2hub workers", "pt2hub workers --all --json")
    panels.add(app, targets, panels.READING, "pt2hub targets")


def models(
    search: Annotated[str | None, typer.Argument(help="A part of the name; all models without it.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List models, their versions and aliases.

    READY is the newest version that is ready, which the model's name alone stands for.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.models(search)
    emit({"models": found}, lambda out: _print_models(out, found, search), as_json=as_json)


def versions(
    model: Annotated[str, typer.Argument(help="team/name.")],
    *,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the versions of a model, newest first."""
    from pt2hub.cli.references import model_name
    from pt2hub.client.client import Client

    name = model_name(model)
    with Client() as client:
        found = client.versions(name, limit=limit + 1)
    shown, more = found[:limit], len(found) > limit
    emit(
        {"versions": shown, "more": more},
        lambda out: _print_versions(out, shown, more=more),
        as_json=as_json,
    )


def builds(
    what: Annotated[
        str | None,
        typer.Argument(metavar="ID|MODEL[@REF]", help="A build, or a model or version whose builds to list."),
    ] = None,
    *,
    state: Annotated[BuildState | None, typer.Option(help="Only those in this state.")] = None,
    target: Annotated[str | None, typer.Option(help="Only those for this target.")] = None,
    kind: Annotated[
        BuildKind | None, typer.Option(help="Only those that build, or only those that measure again.")
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest builds, or show one with its attempts and steps.

    The steps are those of its latest attempt.
    KIND is build, or measure for a job that times an artifact again.
    """
    from pt2hub.cli.references import NO_BUILD, hinted
    from pt2hub.client.client import Client

    with Client() as client:
        if what and "/" not in what:
            if state or target or kind:
                raise click.UsageError(
                    "--state, --target and --kind choose from a list; the id names one build."
                )
            with hinted(NO_BUILD):
                _show(client.build(what), as_json=as_json)
            return
        model, number = _chosen(client, what)
        found = client.builds(model, number=number, state=state, target=target, kind=kind, limit=limit + 1)
    shown, more = found[:limit], len(found) > limit
    emit({"builds": shown, "more": more}, lambda out: _print_builds(out, shown, more=more), as_json=as_json)


def workers(
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Those too that left or were lost within a day.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the workers and what each is doing.

    SLOTS is how many builds it has of those that it takes at a time, ISOLATION how it
    confines models' code: in a sandbox, only as a process of its own, or none of it runs.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.workers(gone=every)
    emit({"workers": found}, lambda out: _print_workers(out, found, every=every), as_json=as_json)


def targets(*, as_json: AsJson = False) -> None:
    """List the targets that workers offer or offered, and their queues.

    SLOTS is how many builds and measuring jobs the live workers take at a time,
    SINCE when the first of the queued ones has waited.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.targets()
    emit({"targets": found}, lambda out: _print_targets(out, found), as_json=as_json)


def _show(build: BuildView, *, as_json: bool) -> None:
    from pt2hub.client.progress import print_build

    emit(build, lambda out: print_build(out, build), as_json=as_json)


def _chosen(client: Client, what: str | None) -> tuple[str | None, int | None]:
    from pt2hub.cli.references import model_name, number_of

    if what is None:
        return None, None
    return number_of(client, what) if "@" in what else (model_name(what), None)


def _print_models(out: Console, found: list[ModelView], search: str | None) -> None:
    from pt2hub.cli.tables import print_table

    if found:
        headings = ("MODEL", "VERSIONS", "NEWEST", "READY", "ALIASES", "CREATED")
        print_table(out, headings, [_model_row(item) for item in found])
    elif search:
        out.print(f"No model's name holds {search!r}. `pt2hub models` lists them all.", markup=False)
    else:
        out.print(
            "No models yet. Publish the first one: pt2hub publish SPEC --wait (pt2hub publish --help)",
            markup=False,
        )


def _model_row(model: ModelView) -> tuple[Cell, ...]:
    aliases = [f"{name}={number}" for name, number in sorted(model.aliases.items())]
    newest, ready = (str(number or NOTHING) for number in (model.newest, model.newest_ready))
    return model.name, model.counted, newest, ready, aliases, when(model.created_at)


def _print_versions(out: Console, found: list[VersionSummary], *, more: bool) -> None:
    from pt2hub.cli.tables import print_table

    if not found:
        out.print("No versions yet. Publish one: pt2hub publish SPEC --wait", markup=False)
        return
    headings = ("VERSION", "READINESS", "ALIASES", "TARGETS", "CREATED")
    print_table(out, headings, [_version_row(item) for item in found])
    if more:
        out.print("There are older ones; --limit takes more.", markup=False)


def _version_row(version: VersionSummary) -> tuple[Cell, ...]:
    from pt2hub.rendering.printing import unmeasured

    targets = [
        f"{target} {state}{unmeasured(version.measurements.get(target))}"
        for target, state in version.targets.items()
    ]
    return str(version.number), version.readiness, version.aliases, targets, when(version.created_at)


def _print_builds(out: Console, found: list[BuildView], *, more: bool) -> None:
    from pt2hub.cli.tables import print_table

    if not found:
        out.print("No such builds. `pt2hub publish SPEC` queues one per target.", markup=False)
        return
    headings = ("BUILD", "VERSION", "TARGET", "STATE", "TOOK", "CREATED", "KIND", "NOTE")
    print_table(out, headings, [_build_row(item) for item in found])
    if more:
        out.print("There are older ones; --limit takes more.", markup=False)


def _build_row(build: BuildView) -> tuple[Cell, ...]:
    from pt2hub.rendering.printing import standing

    duration = took(build.started_at, build.finished_at)
    created, version = when(build.created_at), f"{build.model}@{build.number}"
    told = (build.id, version, build.target, standing(build), duration, created)
    return *told, build.kind, _note(build)


def _note(build: BuildView) -> str:
    """What is not as usual: an error, why it waits, its priority, further attempts, an artifact without figures."""
    from pt2hub.rendering.printing import attempts, measurement

    notes = [
        str((build.error or {}).get("code") or build.note or ""),
        f"priority {build.priority}" if build.priority else "",
        attempts(build),
        measurement(build.measurement),
    ]
    return "; ".join(note for note in notes if note)


def _print_workers(out: Console, found: list[WorkerView], *, every: bool) -> None:
    from pt2hub.cli.tables import print_table

    if not found:
        more = "" if every else " pt2hub workers --all lists those too that went within a day."
        out.print(
            "No worker is ready; one that was started just now takes some seconds. Start one: pt2hub up, or "
            f"pt2hub worker.{more}",
            markup=False,
        )
        return
    headings = (
        "WORKER",
        "TARGET",
        "STATE",
        "DOING",
        "SLOTS",
        "ISOLATION",
        "VERSION",
        "HOST",
        "LAST SEEN",
        "NOTE",
    )
    print_table(out, headings, [_worker_row(item) for item in found])


def _worker_row(worker: WorkerView) -> tuple[Cell, ...]:
    from pt2hub.rendering.printing import doing, skew

    at_work = [f"{doing(item)} {item.step or 'begins'}" for item in worker.builds]
    slots = f"{len(worker.builds)}/{worker.concurrency}"
    known = (worker.isolation, worker.version or NOTHING, worker.host or NOTHING)
    seen = when(worker.last_seen)
    return worker.id, worker.target, worker.state, at_work, slots, *known, seen, skew(worker)


def _print_targets(out: Console, found: list[TargetView]) -> None:
    from pt2hub.cli.tables import print_table

    if not found:
        out.print("No target is known yet. Start a worker: pt2hub up, or pt2hub worker.", markup=False)
        return
    headings = ("TARGET", "WORKERS", "SLOTS", "RUNNING", "QUEUED", "SINCE", "LAST SEEN")
    print_table(out, headings, [_target_row(item) for item in found])


def _target_row(target: TargetView) -> tuple[Cell, ...]:
    counts = (target.live_workers, target.slots, target.running, target.queued)
    return target.name, *map(str, counts), when(target.oldest), when(target.last_seen)
