"""`pt2hub export` and `pt2hub import`: other runtimes, and machines without the server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, shows_progress
from pt2hub.cli.references import Reference  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.rendering.quantities import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.exports.exporter import ImportedArtifact, TritonExport


def register(app: typer.Typer) -> None:
    """Add the commands of exports to the app."""
    group = typer.Typer(
        help="Exports: Triton Inference Server, bundles for an air gap.",
        no_args_is_help=True,
        suggest_commands=False,
    )
    panels.add(group, triton, bundle)
    app.add_typer(group, name="export", rich_help_panel=panels.USING)
    panels.add(app, import_bundle)


@panels.command(
    None,
    "pt2hub export triton vision/resnet18@prod model-repository",
    "pt2hub export triton vision/resnet18@prod s3://models/triton --name resnet18",
)
def triton(
    reference: Reference,
    destination: Annotated[
        str, typer.Argument(metavar="DIR|s3://...", help="The model repository; the model is added to it.")
    ],
    *,
    name: Annotated[
        str | None, typer.Option(help="Name of the model in the repository; team_name if omitted.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target of the machine that will serve it.")] = None,
) -> None:
    """Write a model repository of Triton Inference Server.

    It holds config.pbtxt, made from the artifact's signature, and model.pt2. Triton calls a model with tensors only.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.exports.triton(
            reference, destination, target=target, name=name, progress=shows_progress()
        )
    emit(found, lambda out: _print_triton(out, found))


@panels.command(
    None,
    "pt2hub export bundle vision/resnet18@prod resnet18.tar",
    "pt2hub export bundle vision/resnet18@3 text/bert@prod models.tar --target torch2.13-cpu-x86_64_v3",
)
def bundle(
    references: Annotated[
        list[str], typer.Argument(metavar="REF... FILE.tar|DIR", help="References, then the bundle to write.")
    ],
    *,
    target: Annotated[
        list[str] | None, typer.Option(help="Take this target only; may be repeated. All if omitted.")
    ] = None,
) -> None:
    """Write artifacts with all their files into one bundle.

    A bundle is an OCI image layout: a tar file, or a folder. `pt2hub import` brings it into the cache of a machine that
    does not reach the server.
    """
    import click

    from pt2hub.client.client import Client

    *wanted, out = references
    if not wanted:
        raise click.UsageError("The bundle to write is required: pt2hub export bundle REF FILE.tar")
    with Client() as client:
        found = client.exports.bundle(wanted, Path(out), targets=target or (), progress=shows_progress())
    document = {"bundle": out, "artifacts": found}
    emit(document, lambda console: _print_artifacts(console, found, f"Wrote {out} with"))


@panels.command(panels.USING, "pt2hub import resnet18.tar", name="import")
def import_bundle(
    bundle: Annotated[
        Path, typer.Argument(help="A bundle of `pt2hub export bundle`: a tar file or a folder.")
    ],
) -> None:
    """Bring the artifacts of a bundle into the cache.

    Every byte is checked against its digest. The references of the bundle then load without the server, offline too.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.exports.import_bundle(bundle, progress=shows_progress())
    emit({"bundle": str(bundle), "artifacts": found}, lambda out: _print_artifacts(out, found, "Imported"))


def _print_triton(out: Console, found: TritonExport) -> None:
    out.print(f"Wrote the model {found.model} for {found.target} to {found.destination}")
    out.print(found.release)


def _print_artifacts(out: Console, found: list[ImportedArtifact], what: str) -> None:
    from pt2hub.cli.tables import print_table

    out.print(f"{what} {format_count(len(found), 'artifact')}")
    rows = [(item.reference, item.target, item.digest[:19]) for item in found]
    print_table(out, ("VERSION", "TARGET", "ARTIFACT"), rows)
