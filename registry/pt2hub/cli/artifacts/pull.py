"""`pt2hub pull` and `pt2hub run`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.artifacts.availability_options import (  # noqa: TC001  # typer reads annotations when it runs
    LockPath,
    MaxAge,
    Offline,
)
from pt2hub.cli.output import collect_warnings, emit, shows_progress
from pt2hub.cli.references import Reference  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.rendering.quantities import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.artifacts.local import LocalArtifact


class VerifyOption(StrEnum):
    """Check of cached weights."""

    STAT = "stat"
    ALWAYS = "always"


Verify = Annotated[
    VerifyOption,
    typer.Option(
        help="How cached weights are checked: by size, time and inode (stat), or by hashing them (always)."
    ),
]


@panels.command(panels.USING, "pt2hub pull vision/resnet18@prod -o model.pt2")
def pull(  # noqa: PLR0913  # each is an option by name
    reference: Reference,
    *,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE|s3://...",
            help="Also write a single file that PyTorch's own loaders accept, to a path or into a bucket.",
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target of another machine.")] = None,
    verify: Verify = VerifyOption.STAT,
    lock: LockPath = None,
    offline: Offline = False,
    max_age: MaxAge = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="Leave out the attached files.")] = False,
) -> None:
    """Download an artifact into the cache of this machine.

    Its attached files come along.
    """
    from pt2hub.client.artifacts.origin import LastKnownResolutionWarning
    from pt2hub.client.artifacts.yanks import YankedVersionWarning
    from pt2hub.client.client import Client

    categories = (LastKnownResolutionWarning, YankedVersionWarning)
    with Client() as client, collect_warnings(*categories) as warned:
        artifact = client.pull(
            reference,
            target=target,
            verify=verify.value,
            progress=shows_progress(),
            lock=lock,
            offline=offline,
            max_age=max_age,
            files=not no_files,
        )
        if out:
            client.exports.single_file(artifact, out)
    document = _describe(artifact, out) | {"warnings": warned}
    emit(document, lambda console: _print_pulled(console, artifact, out))


@panels.command(panels.USING, "pt2hub run vision/resnet18@3 --calls 100")
def run(  # noqa: PLR0913  # each is an option by name
    reference: Reference,
    *,
    device: Annotated[str | None, typer.Option(help="Device to run on, such as cuda:1.")] = None,
    calls: Annotated[int, typer.Option(min=1, help="Number of timed calls.")] = 20,
    verify: Verify = VerifyOption.STAT,
    lock: LockPath = None,
    offline: Offline = False,
    max_age: MaxAge = None,
) -> None:
    """Load an artifact and time it on generated inputs.

    Prints the shapes of inputs and outputs, and the latency.
    """
    from pt2hub.cli.artifacts.sample_calls import time_calls
    from pt2hub.client.artifacts.origin import LastKnownResolutionWarning
    from pt2hub.client.artifacts.yanks import YankedVersionWarning
    from pt2hub.client.client import Client

    categories = (LastKnownResolutionWarning, YankedVersionWarning)
    with Client() as client, collect_warnings(*categories) as warned:
        model = client.load(
            reference,
            device=device,
            verify=verify.value,
            progress=shows_progress(),
            lock=lock,
            offline=offline,
            max_age=max_age,
        )
    report = time_calls(model, calls) | {"warnings": warned}
    emit(report, lambda console: _print_report(console, report))


def _describe(artifact: LocalArtifact, out: str | None) -> dict[str, Any]:
    version = artifact.config.version
    return {
        "model": version.model,
        "number": version.number,
        "target": artifact.config.target.name,
        "artifact": artifact.manifest_digest,
        "code": str(artifact.code),
        "weights": str(artifact.weights),
        "files": {name: str(path) for name, path in artifact.files.items()},
        "single_file": out,
    }


def _print_pulled(console: Console, artifact: LocalArtifact, out: str | None) -> None:
    from pt2hub.cli.tables import print_fields

    version = artifact.config.version
    console.print(f"{version.model}@{version.number} for {artifact.config.target}", style="bold")
    sizes = {
        name: (path, path.stat().st_size)
        for name, path in (("code", artifact.code), ("weights", artifact.weights), *artifact.files.items())
    }
    whole = {"file": (out, artifact.config.single_file.size)} if out else {}
    fields = [(name, f"{place}  ({format_bytes(size)})") for name, (place, size) in (sizes | whole).items()]
    print_fields(console, [("artifact", artifact.manifest_digest or ""), *fields])


def _print_report(console: Console, report: dict[str, Any]) -> None:
    from pt2hub.cli.tables import print_fields

    console.print(f"{report['model']} for {report['target']}", style="bold")
    for kind in ("inputs", "outputs"):
        console.print(kind)
        print_fields(console, list(report[kind].items()))
    latency = f"{report['latency_ms_p50']} ms median, {report['latency_ms_min']} ms fastest"
    console.print(f"latency  {latency} of {report['calls']} calls on {report['threads']} threads")
