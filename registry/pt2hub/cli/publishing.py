"""Commands that start and follow work: publish, logs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import building, panels
from pt2hub.cli.output import INTERRUPTED, AsJson, emit, note
from pt2hub.cli.wait_option import Until, Wait, WaitCommand
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.client.options import SpecOptions
    from pt2hub.wire.shapes import BuildView, LogView, VersionView

_FAILED = 1


def register_publish(app: typer.Typer) -> None:
    """Adds the command that publishes."""
    panels.add(
        app,
        publish,
        panels.PUBLISHING,
        "pt2hub publish resnet18.yaml --wait",
        "pt2hub publish resnet18.yaml --wait measured",
        "pt2hub publish resnet18.yaml --weights retrained.safetensors --wait",
        "pt2hub publish resnet18.yaml --weights torchvision:ResNet18_Weights.DEFAULT",
        "pt2hub publish mine.yaml --code src/ --weights trained.safetensors",
        "pt2hub publish exported.yaml --program model.pt2",
        "pt2hub publish urgent.yaml --priority 50",
        cls=WaitCommand,
    )


def register_logs(app: typer.Typer) -> None:
    """Adds the command that reads logs."""
    panels.add(
        app,
        logs,
        panels.READING,
        "pt2hub logs -f 688d2e6fd6eb1e11",
        "pt2hub logs vision/resnet18@3 --target torch2.13-cpu-x86_64_v4 --all",
    )


def publish(  # noqa: PLR0913  # the options of a command
    spec: Annotated[Path, typer.Argument(help="The spec, YAML or JSON.")],
    *,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="A safetensors file to upload and to name in the spec, or the name of pretrained weights to fetch: "
            "torchvision:ResNet18_Weights.DEFAULT, hf:team/name@revision.",
        ),
    ] = None,
    code: Annotated[
        Path | None,
        typer.Option(help="A folder of Python source to pack and upload; the spec has its `entry`."),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(help="A file of torch.export.save to upload; it is the source and has the weights."),
    ] = None,
    priority: Annotated[int, building.Priority] = 0,
    wait: Wait = None,
    as_json: AsJson = False,
) -> None:
    """Publish a model: one build per target is queued.

    A version is ready when every artifact is built and proven; it is measured afterwards.

    The same spec and weights again are the same version.
    Targets that it lacked are added to it, and a higher priority moves its waiting builds up.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        files: SpecOptions = {"weights": weights, "code": code, "program": program}
        version = _submit(
            client, spec, {**files, "priority": priority, "progress": False if as_json else None}
        )
        if wait is None:
            emit(version, lambda out: _print_queued(out, version), as_json=as_json)
            return
        try:
            version = _followed(client, version, wait, quiet=as_json)
        except KeyboardInterrupt:
            _explain_interrupt(version, as_json=as_json)
            raise typer.Exit(INTERRUPTED) from None
    stopped = [build for build in version.builds if build.state != BuildState.SUCCEEDED]
    error = _stopped(stopped) if stopped else _unmeasured(version) if wait is Until.MEASURED else None
    document: dict[str, Any] = encode(version) | ({"error": error} if error else {})
    emit(document, lambda out: _print_ended(out, version, error), as_json=as_json)
    if error:
        raise typer.Exit(_FAILED)


def logs(
    build: Annotated[
        str,
        typer.Argument(metavar="ID|MODEL@REF", help="A build as publish and show print it, or a version."),
    ],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the build is final.")] = False,
    target: Annotated[str | None, typer.Option(help="Which build of a version that has several.")] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Which attempt; the latest where omitted.", show_default=False)
    ] = None,
    whole: Annotated[bool, typer.Option("--all", help="The compiler's noise too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the log of a build: its steps and what the model printed.

    With --follow it goes on from attempt to attempt, and with --json it then prints one JSON value a line.
    """
    from pt2hub.cli.references import NO_BUILD, build_of, hinted
    from pt2hub.cli.statuses import Statuses
    from pt2hub.client.client import Client
    from pt2hub.errors import InvalidInput

    if follow and attempt is not None:
        raise InvalidInput(
            "--follow goes on from attempt to attempt, so it takes no --attempt",
            where="--attempt",
            hint="Leave out one of the two.",
        )
    with Client() as client, hinted(NO_BUILD):
        build_id = build_of(client, build, target)
        if follow:
            told = None if as_json else Statuses()
            lines = client.follow_logs(build_id, summary=not whole, on_build=told)
            _print_followed(lines, as_json=as_json)
            return
        lines = client.all_logs(build_id, attempt=attempt, summary=not whole)
        if as_json:
            emit({"lines": list(lines)}, lambda _: None, as_json=True)
            return
        _print_lines(lines)


def _print_followed(lines: Iterator[LogView], *, as_json: bool) -> None:
    import json

    try:
        for line in lines:
            print(json.dumps(encode(line)) if as_json else str(line), flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None  # the way to end it; every line printed is whole


def _print_lines(lines: Iterator[LogView]) -> None:
    shown = last = 0
    for line in lines:
        print(str(line))
        shown, last = shown + 1, line.seq
    if last > shown:  # lines are numbered without gaps
        note(f"{last - shown} lines of the compiler are left out; --all shows them.")


def _submit(client: Client, spec: Path, options: SpecOptions) -> VersionView:
    from pt2hub.cli.places import in_file
    from pt2hub.errors import UsageError

    try:
        return client.publish(spec, **options)
    except UsageError as exc:
        raise in_file(exc, spec) from exc


def _followed(client: Client, version: VersionView, until: Until, *, quiet: bool) -> VersionView:
    from pt2hub.client.progress import progress

    if not quiet and _nobody(version):  # the display says it, and how to get one
        note("Ctrl-C ends the waiting only: what is queued stays queued.")
    with progress(quiet=quiet) as display:
        return client.follow(version, display, until=until.value)


def _nobody(version: VersionView) -> str:
    """What to do about builds that no worker takes; empty where there are none."""
    from pt2hub.client.progress import lonely

    targets = [build.target for build in version.builds if lonely(build)]
    if not targets:
        return ""
    waiting = " and ".join(f"pt2hub cancel {build.id}" for build in version.builds if lonely(build))
    return (
        f"No worker is ready for {', '.join(targets)}: what was queued waits. `pt2hub up` runs one for its own "
        "machine; on such a machine start `pt2hub worker` with the server's PT2HUB_DATABASE_URL and PT2HUB_STORAGE. "
        f"To give up: {waiting}"
    )


def _explain_interrupt(version: VersionView, *, as_json: bool) -> None:
    if as_json:
        emit(version, lambda _: None, as_json=True)
        return
    note("", "Interrupted. The builds go on without you.", *_next_commands(version))


def _next_commands(version: VersionView) -> Iterator[str]:
    from pt2hub.client.publishing import over

    open_builds = [build for build in version.builds if not over(build)]
    commands = {f"pt2hub logs -f {build.id}": f"follows {build.target}" for build in open_builds}
    commands[f"pt2hub show {version.model}@{version.number}"] = (
        "shows how far they are" if open_builds else ""
    )
    width = max(map(len, commands))
    for command, purpose in commands.items():
        yield f"  {command.ljust(width)}  {purpose}".rstrip()


def _stopped(stopped: list[BuildView]) -> dict[str, Any]:
    """The error of the first build that did not succeed, for programs that look for one."""
    from pt2hub.errors import UsageError

    again = f"pt2hub retry {stopped[0].id} queues it again."
    cancelled = UsageError("The build was cancelled", where=stopped[0].target, hint=again)
    errors = [build.error for build in stopped if build.error]
    return errors[0] if errors else cancelled.as_dict()


def _unmeasured(version: VersionView) -> dict[str, Any] | None:
    """The error of a version whose artifacts are not all measured; None where they are."""
    from pt2hub.errors import NotMeasured
    from pt2hub.rendering.printing import measurement_state

    missing = [
        build for build in version.builds if not build.measurement or build.measurement.state != "measured"
    ]
    if not missing:
        return None
    first, status = missing[0], missing[0].measurement
    reason = f": {status.reason}" if status and status.reason else ""
    reference = f"{version.model}@{version.number}"
    return NotMeasured(
        f"{reference} is {version.readiness}, and on {first.target} "
        f"{measurement_state(status.state) if status else 'not measured'}{reason}",
        where=first.target,
        hint=f"To measure it: pt2hub measure {reference} --target {first.target} --wait",
        context={"targets": [build.target for build in missing], "job": status.job if status else None},
    ).as_dict()


def _print_queued(out: Console, version: VersionView) -> None:
    from pt2hub.cli.showing import judged, print_version

    if not version.created:
        out.print("The same spec and weights were published before; this is that version.", markup=False)
    print_version(out, version, judged(version))
    if advice := _nobody(version):
        note(advice)
    out.print("Next:", *_next_commands(version), sep="\n", markup=False)


def _print_ended(out: Console, version: VersionView, error: dict[str, Any] | None) -> None:
    from pt2hub.cli.showing import judged, print_version
    from pt2hub.wire.problems import from_dict

    print_version(out, version, judged(version))
    if error and error.get("code") == "not_measured":  # those of builds stand beside them
        note(*str(from_dict(error)).splitlines(), "  [not_measured]")
