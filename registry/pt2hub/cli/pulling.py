"""Commands about artifacts on this machine: pull, run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import AsJson, emit
from pt2hub.cli.references import Reference  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.cli.words import size

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.local import LocalArtifact


class VerifyOption(StrEnum):
    """How cached weights are checked."""

    STAT = "stat"
    ALWAYS = "always"


Verify = Annotated[
    VerifyOption, typer.Option(help="Trust cached weights by size, time and inode, or hash them again.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    panels.add(app, pull, panels.USING, "pt2hub pull vision/resnet18@prod -o model.pt2")
    panels.add(app, run, panels.USING, "pt2hub run vision/resnet18@3 --calls 100")


def pull(
    reference: Reference,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the single file that stock loaders take.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Another machine's target.")] = None,
    verify: Verify = VerifyOption.STAT,
    as_json: AsJson = False,
) -> None:
    """Bring an artifact's files into the cache of this machine."""
    from pt2hub.client.client import Client

    with Client() as client:
        artifact = client.pull(
            reference, target=target, verify=verify.value, progress=False if as_json else None
        )
    if out:
        from pt2hub.client.exports import write_model

        write_model(artifact, out)
    document = _described(artifact, out)
    emit(document, lambda console: _print_pulled(console, artifact, out), as_json=as_json)


def run(
    reference: Reference,
    *,
    device: Annotated[str | None, typer.Option(help="Such as cuda:1.")] = None,
    calls: Annotated[int, typer.Option(min=1, help="Timed calls.")] = 20,
    verify: Verify = VerifyOption.STAT,
    as_json: AsJson = False,
) -> None:
    """Load an artifact and time it on inputs made up for it.

    It prints the shapes of inputs and outputs, and the latency.
    """
    from pt2hub.cli.sampling import try_out
    from pt2hub.client.client import Client

    with Client() as client:
        model = client.load(
            reference, device=device, verify=verify.value, progress=False if as_json else None
        )
        report = try_out(model, calls)
    emit(report, lambda console: _print_report(console, report), as_json=as_json)


def _described(artifact: LocalArtifact, out: Path | None) -> dict[str, Any]:
    version = artifact.config.version
    return {
        "model": version.model,
        "number": version.number,
        "target": artifact.config.target.name,
        "artifact": artifact.manifest_digest,
        "code": str(artifact.code),
        "weights": str(artifact.weights),
        "single_file": str(out) if out else None,
    }


def _print_pulled(console: Console, artifact: LocalArtifact, out: Path | None) -> None:
    from pt2hub.cli.tables import print_fields

    version = artifact.config.version
    console.print(
        f"{version.model}@{version.number} for {artifact.config.target}", markup=False, style="bold"
    )
    files = {"code": artifact.code, "weights": artifact.weights} | ({"file": out} if out else {})
    fields = [(name, f"{path}  ({size(path.stat().st_size)})") for name, path in files.items()]
    print_fields(console, [("artifact", artifact.manifest_digest or ""), *fields])


def _print_report(console: Console, report: dict[str, Any]) -> None:
    from pt2hub.cli.tables import print_fields

    console.print(f"{report['model']} for {report['target']}", markup=False, style="bold")
    for kind in ("inputs", "outputs"):
        console.print(kind, markup=False)
        print_fields(console, list(report[kind].items()))
    latency = f"{report['latency_ms_p50']} ms median, {report['latency_ms_min']} ms fastest"
    console.print(
        f"latency  {latency} of {report['calls']} calls on {report['threads']} threads", markup=False
    )
