"""`pt2hub show`: a version, its artifacts, and whether they run here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.autotuning import print_autotune
from pt2hub.cli.output import AsJson, emit
from pt2hub.cli.references import Reference, version_of
from pt2hub.cli.words import took, when
from pt2hub.domain.codec import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.domain.artifacts import NativeCode
    from pt2hub.domain.targets import Target
    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.shapes import BuildView, VersionView

UNKNOWN = "unknown to this pt2hub; a newer one may know the target"
_RUNS = "runs here"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    panels.add(
        app,
        show,
        panels.READING,
        "pt2hub show vision/resnet18@prod",
        "pt2hub show vision/resnet18@3 --autotune",
        "pt2hub show vision/resnet18@3 --json",
    )


def show(
    reference: Reference,
    *,
    autotune: Annotated[
        bool,
        typer.Option("--autotune", help="Also the candidates that the compiler timed, as it prints them."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a version, and which of its artifacts run here."""
    from pt2hub.client.client import Client

    with Client() as client:
        version = version_of(client, reference)
        aliases = _aliases(client, version)
        artifacts = {b.target: client.artifact(b.artifact) for b in version.builds if b.artifact}
    verdicts = judged(version, artifacts)
    document: dict[str, Any] = encode(version) | {
        "aliases": aliases,
        "runs_here": verdicts,
        "artifacts": {
            target: {
                "weights": view.weights_form,
                "isolation": view.provenance.get("isolation"),
                "profile": encode(view.profile),
                "referrers": [{"digest": r.digest, "type": r.artifact_type} for r in view.referrers],
                **({"autotune": encode(view.autotune)} if autotune else {}),
            }
            for target, view in artifacts.items()
        },
        "pull": pull_command(version, verdicts),
    }

    def tell(out: Console) -> None:
        print_version(out, version, verdicts, aliases, artifacts)
        for target, view in artifacts.items() if autotune else ():
            print_autotune(out, target, view)

    emit(document, tell, as_json=as_json)


def judged(version: VersionView, artifacts: Mapping[str, ArtifactView] | None = None) -> dict[str, str]:
    """Whether each artifact runs on this machine, by the names of their targets.

    Args:
        version: The version.
        artifacts: What is known of each artifact, by its target: then what its libraries need counts too.
    """
    from pt2hub.client.host import this_host
    from pt2hub.domain.verdicts import judge

    targets = {build.target: _target(build.target) for build in version.builds if build.artifact}
    host = this_host(gpu=any(target and target.device == "cuda" for target in targets.values()))
    needs = {name: _native(view) for name, view in (artifacts or {}).items()}
    return {
        name: str(judge(target, host, needs.get(name))) if target else UNKNOWN
        for name, target in targets.items()
    }


def _native(artifact: ArtifactView) -> NativeCode | None:
    """What an artifact's libraries need; None where a newer pt2hub says it in another way."""
    from pt2hub.domain.artifacts import NativeCode
    from pt2hub.domain.codec import decode
    from pt2hub.errors import BadResponse

    try:
        return decode(NativeCode, artifact.config.get("native"))
    except BadResponse:
        return None


def pull_command(version: VersionView, verdicts: Mapping[str, str]) -> str | None:
    """The command that brings an artifact here: one that runs if there is any; None where none can be pulled."""
    known = [name for name, verdict in verdicts.items() if verdict != UNKNOWN]
    if not known:
        return None
    command = f"pt2hub pull {version.model}@{version.number}"
    return command if _RUNS in verdicts.values() else f"{command} --target {known[0]}"


def print_version(
    out: Console,
    version: VersionView,
    verdicts: Mapping[str, str],
    aliases: list[str] | None = None,
    artifacts: Mapping[str, ArtifactView] | None = None,
) -> None:
    """Prints a version for people.

    Args:
        out: Where to.
        version: The version.
        verdicts: Whether each artifact runs here, by its target.
        aliases: Those that are on it.
        artifacts: What is known of each artifact, by its target.
    """
    from pt2hub.cli.tables import in_colour, print_fields

    out.print(in_colour(f"{version.model}@{version.number}  {version.readiness}"), style="bold")
    fields = [
        ("aliases", ", ".join(aliases or ())),
        ("created", when(version.created_at)),
        ("weights", version.weights or ""),
        ("from", version.pins.get("weights_from", "")),
        ("pull", pull_command(version, verdicts) or ""),
    ]
    print_fields(out, fields)
    for build in version.builds:
        _print_build(out, build, verdicts.get(build.target), (artifacts or {}).get(build.target))


def _print_build(out: Console, build: BuildView, verdict: str | None, artifact: ArtifactView | None) -> None:
    from pt2hub.cli.tables import in_colour, print_fields
    from pt2hub.rendering.printing import attempts, made, measurement, standing
    from pt2hub.rendering.speeds import line
    from pt2hub.wire.problems import from_dict

    out.print(in_colour(f"{build.target}  {standing(build)}" + (f"  {verdict}" if verdict else "")))
    duration = f"  ({took(build.started_at, build.finished_at)})" if build.finished_at else ""
    running = build.steps[-1].name if build.steps and build.state == "running" else ""
    fields = [
        ("build", build.id + duration),
        ("artifact", build.artifact or ""),
        *((*made(artifact), ("speed", line(artifact.measurements))) if artifact else ()),
        ("measured", measurement(build.measurement)),
        ("priority", str(build.priority or "")),
        ("step", running),
        ("attempt", attempts(build).removeprefix("attempt ")),
        ("waits" if build.state == "queued" else "note", build.note or ""),
        ("log", f"pt2hub logs {build.id}" if build.error else ""),
        ("again", f"pt2hub retry {build.id}" if build.state == "cancelled" else ""),
    ]
    print_fields(out, fields)
    if build.error:
        error = from_dict(build.error)
        out.print(
            *(f"  {line}" for line in str(error).splitlines()),
            f"  [{error.code}]",
            sep="\n",
            markup=False,
            style="red",
        )


def _aliases(client: Client, version: VersionView) -> list[str]:
    return sorted(
        name for name, number in client.model(version.model).aliases.items() if number == version.number
    )


def _target(name: str) -> Target | None:
    from pt2hub.domain.targets import parse_target
    from pt2hub.errors import UnknownTarget

    try:
        return parse_target(name)
    except UnknownTarget:
        return None
