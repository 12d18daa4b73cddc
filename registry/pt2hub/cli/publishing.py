"""Commands about versions and builds: publish, show, builds, logs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli.output import AsJson, emit
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.shapes import LogView, VersionView


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(publish)
    app.command()(show)
    app.command()(builds)
    app.command()(logs)


def publish(
    spec: Annotated[Path, typer.Argument(help="The spec, YAML or JSON.")],
    *,
    weights: Annotated[
        Path | None, typer.Option(help="A safetensors file to upload and to name in the spec.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Follow the builds to their end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish a model: one build per target is queued."""
    from pt2hub.cli.progress import progress
    from pt2hub.client.client import Client

    with Client() as client:
        version = client.publish(spec, weights=weights)
        if wait:
            with progress(quiet=as_json) as display:
                version = client.follow(version, display)
    failed = [build for build in version.builds if build.state == BuildState.FAILED]
    document = encode(version) | ({"error": failed[0].error} if failed else {})
    emit(document, lambda out: _print_version(out, version, {}), as_json=as_json)
    if wait and failed:
        raise typer.Exit(1)


def show(
    reference: Annotated[str, typer.Argument(help="team/name, team/name@3 or team/name@sha256:...")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show a version, its builds, and which of its artifacts run on this machine."""
    from pt2hub.client.client import Client

    with Client() as client:
        version = _version(client, reference)
    verdicts = _verdicts(version)
    document: dict[str, Any] = encode(version) | {"runs_here": verdicts}
    emit(document, lambda out: _print_version(out, version, verdicts), as_json=as_json)


def builds(
    build_id: Annotated[str, typer.Argument(metavar="ID", help="As publish and show print it.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show a build and the steps of its latest attempt."""
    from pt2hub.cli.progress import print_build
    from pt2hub.client.client import Client

    with Client() as client:
        build = client.build(build_id)
    emit(build, lambda out: print_build(out, build), as_json=as_json)


def logs(
    build_id: Annotated[str, typer.Argument(metavar="ID", help="As publish and show print it.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the build is final.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the log of a build's latest attempt; with --follow --json, one JSON value a line."""
    import json

    from pt2hub.client.client import Client

    with Client() as client:
        if as_json and not follow:
            emit({"lines": list(client.all_logs(build_id))}, lambda _: None, as_json=True)
            return
        lines = client.follow_logs(build_id) if follow else client.all_logs(build_id)
        for line in lines:
            print(json.dumps(encode(line)) if as_json else _line(line), flush=follow)


def _line(line: LogView) -> str:
    import time

    clock = time.strftime("%H:%M:%S", time.localtime(line.at))
    level = "" if line.level in ("info", "compiler") else f"{line.level}: "
    return f"{clock} {line.step:<8} {level}{line.text}"


def _version(client: Client, reference: str) -> VersionView:
    from pt2hub.domain.names import Reference

    parsed = Reference.parse(reference)
    if parsed.number:
        return client.version(parsed.model, parsed.number)
    resolved = client.resolve(reference)
    return client.version(resolved.model, resolved.number)


def _verdicts(version: VersionView) -> dict[str, str]:
    from pt2hub.client.host import this_host
    from pt2hub.domain.targets import parse_target
    from pt2hub.domain.verdicts import judge

    targets = [parse_target(build.target) for build in version.builds if build.artifact]
    host = this_host(gpu=any(target.device == "cuda" for target in targets))
    return {target.name: str(judge(target, host)) for target in targets}


def _print_version(out: Console, version: VersionView, verdicts: dict[str, str]) -> None:
    from pt2hub.cli.progress import print_build

    again = "" if version.created else f"  (published {version.created_at})"
    out.print(f"[bold]{version.model}@{version.number}[/]  {version.readiness}{again}")
    for build in version.builds:
        print_build(out, build)
        if build.target in verdicts:
            out.print(f"  {verdicts[build.target]}", markup=False)
