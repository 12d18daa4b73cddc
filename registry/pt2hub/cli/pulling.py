"""Commands about artifacts on this machine: pull, run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli.output import AsJson, emit

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.local import LocalArtifact

Reference = Annotated[str, typer.Argument(help="team/name, team/name@3 or team/name@sha256:...")]


class VerifyOption(StrEnum):
    """How cached weights are checked."""

    STAT = "stat"
    ALWAYS = "always"


Verify = Annotated[
    VerifyOption, typer.Option(help="Trust cached weights by size, time and inode, or hash them again.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(pull)
    app.command()(run)


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
        artifact = client.pull(reference, target=target, verify=verify.value)
    if out:
        from pt2hub.client.exports import write_model

        write_model(artifact, out)
    document = _described(artifact, out)
    emit(document, lambda console: _print(console, document), as_json=as_json)


def run(
    reference: Reference,
    *,
    device: Annotated[str | None, typer.Option(help="Such as cuda:1.")] = None,
    calls: Annotated[int, typer.Option(min=1, help="Timed calls.")] = 20,
    verify: Verify = VerifyOption.STAT,
    as_json: AsJson = False,
) -> None:
    """Load an artifact, call it with random inputs, print shapes of its outputs and its latency."""
    from pt2hub.cli.sampling import try_out
    from pt2hub.client.client import Client

    with Client() as client:
        report = try_out(client.load(reference, device=device, verify=verify.value), calls)
    emit(report, lambda console: _print(console, report), as_json=as_json)


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


def _print(console: Console, document: dict[str, Any]) -> None:
    for name, value in document.items():
        if isinstance(value, dict):
            console.print(f"{name}:", markup=False)
            _print(console, {f"  {key}": item for key, item in value.items()})
        elif value is not None:
            console.print(f"{name:<16} {value}", markup=False)
