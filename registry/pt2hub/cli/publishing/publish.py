"""`pt2hub publish`: publishes a spec and follows its builds."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.builds import control
from pt2hub.cli.output import INTERRUPTED, emit, is_json, is_quiet, note, print_json, shows_progress
from pt2hub.cli.publishing import previews
from pt2hub.cli.publishing.file_option import Files, parse_files
from pt2hub.cli.publishing.label_arguments import parse_pairs
from pt2hub.cli.publishing.wait_option import Until, Wait, WaitCommand
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.client.publishing.options import SpecOptions
    from pt2hub.wire.responses import VersionView

_FAILED = 1


@panels.command(
    panels.PUBLISHING,
    "pt2hub publish resnet18.yaml --wait",
    "pt2hub publish resnet18.yaml --wait measured",
    "pt2hub publish resnet18.yaml --weights retrained.safetensors --wait",
    "pt2hub publish resnet18.yaml --weights torchvision:ResNet18_Weights.DEFAULT",
    "pt2hub publish mine.yaml --code src/ --weights trained.safetensors",
    "pt2hub publish exported.yaml --program model.pt2",
    "pt2hub publish resnet18.yaml --label owner=search --label license=Apache-2.0",
    "pt2hub publish net.yaml --file tokenizer.json --file labels.txt:text/plain --file README.md",
    "pt2hub publish tuned.yaml --weights tuned.safetensors --derived-from fine-tuned:vision/resnet18@3",
    "pt2hub publish urgent.yaml --priority 50",
    "pt2hub publish resnet18.yaml --dry-run",
    cls=WaitCommand,
)
def publish(  # noqa: PLR0913  # each is an argument or option of the command line
    spec: Annotated[Path, typer.Argument(help="Path of the spec, YAML or JSON.")],
    *,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="A safetensors file to upload, or the name of pretrained weights to fetch: "
            "torchvision:ResNet18_Weights.DEFAULT, hf:team/name@revision.",
        ),
    ] = None,
    code: Annotated[
        Path | None,
        typer.Option(help="A folder of Python source to upload; the spec names its `entry`."),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(help="A file written by torch.export.save to upload, as source and weights."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="A label of the version, such as license=Apache-2.0; can be repeated."
        ),
    ] = None,
    derived_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RELATION:PARENT",
            help="What the version is derived from, such as fine-tuned:vision/resnet18@3 or "
            "quantized:hf:team/name@revision; can be repeated.",
        ),
    ] = None,
    ci_labels: Annotated[
        bool,
        typer.Option(help="Label with the CI job's commit, repository, branch and run."),
    ] = True,
    file: Files = None,
    priority: Annotated[int, control.Priority] = 0,
    wait: Wait = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check the spec on the server and show what would happen; queue nothing."
        ),
    ] = False,
) -> None:
    """Publish a model: queue one build per target.

    A version is ready when every artifact is built and verified; it is measured afterwards.

    Publishing the same spec and weights again gives the same version.
    New targets are added to it, and a higher priority moves its queued builds up.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        files: SpecOptions = {"weights": weights, "code": code, "program": program}
        files |= {
            "files": parse_files(file or []),
            "labels": parse_pairs(label or ()),
            "ci_labels": ci_labels,
            "derived_from": derived_from,
        }
        if dry_run:
            previews.show(
                client, spec, files, next_step="To publish it, repeat the command without --dry-run."
            )
            return
        version = _submit(client, spec, {**files, "priority": priority, "progress": shows_progress()})
        if not is_json():
            note(*version.notes)
        if wait is None:
            emit(version, lambda out: _print_queued(out, version))
            return
        try:
            version = _follow_builds(client, version, wait)
        except KeyboardInterrupt:
            _explain_interrupt(version)
            raise typer.Exit(INTERRUPTED) from None
    stopped = [build for build in version.builds if build.state != BuildState.SUCCEEDED]
    error = (
        control.first_error(stopped)
        if stopped
        else _missing_measurement(version)
        if wait is Until.MEASURED
        else None
    )
    document: dict[str, Any] = encode(version) | ({"error": error} if error else {})
    emit(document, lambda out: _print_ended(out, version, error))
    if error:
        raise typer.Exit(_FAILED)


def _submit(client: Client, spec: Path, options: SpecOptions) -> VersionView:
    from pt2hub.cli.publishing.option_errors import in_request
    from pt2hub.errors import UsageError

    try:
        return client.publish(spec, **options)
    except UsageError as exc:
        raise in_request(exc, spec, options) from exc


def _follow_builds(client: Client, version: VersionView, until: Until) -> VersionView:
    from pt2hub.client.builds.progress import progress

    if not is_json() and _explain_missing_workers(
        version
    ):  # otherwise the display explains how to start a worker
        note("Ctrl-C stops waiting; the builds stay queued.")
    with progress(quiet=is_quiet()) as display:
        return client.versions.follow(version, display, until=until.value)


def _explain_missing_workers(version: VersionView) -> str:
    """Return advice on builds without a worker; empty if there are none."""
    from pt2hub.rendering.waits import is_lonely

    targets = [build.target for build in version.builds if is_lonely(build)]
    if not targets:
        return ""
    waiting = " and ".join(f"pt2hub cancel {build.id}" for build in version.builds if is_lonely(build))
    return (
        f"No worker is ready for {', '.join(targets)}, so the builds wait. `pt2hub up` runs a worker for its own "
        "machine; for another one, start `pt2hub worker` there with the server's PT2HUB_DATABASE_URL and PT2HUB_STORAGE. "
        f"To cancel: {waiting}"
    )


def _explain_interrupt(version: VersionView) -> None:
    if is_json():
        print_json(version)
        return
    note("", "Interrupted. The builds continue on their workers.", *_next_commands(version))


def _next_commands(version: VersionView) -> Iterator[str]:
    from pt2hub.client.builds.events import over

    open_builds = [build for build in version.builds if not over(build)]
    purposes = {f"pt2hub logs -f {build.id}": f"follows {build.target}" for build in open_builds}
    purposes[f"pt2hub show {version.model}@{version.number}"] = "shows their progress" if open_builds else ""
    width = max(map(len, purposes))
    for command, purpose in purposes.items():
        yield f"  {command.ljust(width)}  {purpose}".rstrip()


def _missing_measurement(version: VersionView) -> dict[str, Any] | None:
    """Return the error for a version with unmeasured artifacts; None if all are measured."""
    from pt2hub.errors import NotMeasured
    from pt2hub.rendering.sheets import measurement_state

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
    from pt2hub.cli.artifacts.show import check_compatibility, print_version

    if not version.created:
        out.print("This spec and these weights are already published as this version.")
    print_version(out, version, check_compatibility(version))
    if advice := _explain_missing_workers(version):
        note(advice)
    out.print("Next:", *_next_commands(version), sep="\n")


def _print_ended(out: Console, version: VersionView, error: dict[str, Any] | None) -> None:
    from pt2hub.cli.artifacts.show import check_compatibility, print_version
    from pt2hub.wire.problems import from_dict

    print_version(out, version, check_compatibility(version))
    if error and error.get("code") == "not_measured":  # errors of builds are printed with the builds
        note(*str(from_dict(error)).splitlines(), "  [not_measured]")
