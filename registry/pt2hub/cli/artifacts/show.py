"""`pt2hub show`: a version, its artifacts, and their compatibility with this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pt2hub.cli import panels
from pt2hub.cli.artifacts.autotune import print_autotune
from pt2hub.cli.artifacts.model_card import find_card, print_card, read_card
from pt2hub.cli.artifacts.profile import print_profile
from pt2hub.cli.output import collect_warnings, emit, is_json, one_line
from pt2hub.cli.references import Reference, version_of
from pt2hub.domain.codec import encode
from pt2hub.rendering.times import format_local_time, format_span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.domain.artifacts import NativeCode
    from pt2hub.domain.principals import Principal
    from pt2hub.domain.targets import Target
    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.responses import BuildView, LabelView, VersionView

UNKNOWN = "unknown target; upgrade pt2hub to use it"
_RUNS = "runs here"
_DAMAGED = "damaged on the server"


@panels.command(
    panels.READING,
    "pt2hub show vision/resnet18@prod",
    "pt2hub show vision/resnet18@3 --autotune",
    "pt2hub show vision/resnet18@3 --profile",
    "pt2hub show vision/resnet18@3 --card",
    "pt2hub show vision/resnet18@3 --json",
)
def show(
    reference: Reference,
    *,
    card: Annotated[
        bool, typer.Option("--card", help="Show the whole model card, not only its beginning.")
    ] = False,
    autotune: Annotated[
        bool,
        typer.Option("--autotune", help="Include the kernel candidates that the compiler timed."),
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Include where the time of a call goes, beside torch.compile: kernels, what they compute, and gaps between "
            "them by cause.",
        ),
    ] = False,
) -> None:
    """Show a version, and which of its artifacts run on this machine."""
    from pt2hub.client.artifacts.origin import LastKnownResolutionWarning
    from pt2hub.client.client import Client
    from pt2hub.rendering.signatures import signature_of

    with Client() as client, collect_warnings(LastKnownResolutionWarning) as warned:
        version = version_of(client, reference)
        aliases = _aliases(client, version)
        artifacts = {b.target: client.artifacts.get(b.artifact) for b in version.builds if b.artifact}
        profiles = {
            target: client.artifacts.profile(view.digest) if view.profile else None
            for target, view in artifacts.items()
            if profile
        }
        shown_card = None if is_json() else read_card(client, version)
    compatibility = check_compatibility(version, artifacts)
    document: dict[str, Any] = encode(version) | {
        "aliases": aliases,
        "compatibility": compatibility,
        "artifacts": {
            target: {
                "code_bytes": view.code_bytes,
                "weights_bytes": view.weights_bytes,
                "single_file_bytes": view.single_file_bytes,
                "inputs": encode(signature.inputs) if (signature := signature_of(view)) else None,
                "dims": encode(signature.dims) if signature else None,
                "fixed": encode(signature.fixed) if signature else None,
                "weights": view.weights_form,
                "isolation": view.provenance.get("isolation"),
                "regions": encode(view.regions),
                "profile": encode(view.profile),
                "torch_compile_profile": encode(view.torch_compile_profile),
                **({"call_profile": encode(profiles[target])} if profile else {}),
                "damaged": encode(view.damaged),
                "referrers": [{"digest": r.digest, "type": r.artifact_type} for r in view.referrers],
                **({"autotune": encode(view.autotune)} if autotune else {}),
            }
            for target, view in artifacts.items()
        },
        "card": encode(find_card(version)),
        "pull": pull_command(version, compatibility),
        **({"warnings": warned} if warned else {}),
    }

    def print_all(out: Console) -> None:
        print_version(out, version, compatibility, aliases, artifacts)
        print_card(out, shown_card, version, whole=card)
        for target, view in artifacts.items() if autotune else ():
            print_autotune(out, target, view)
        for target, found in profiles.items():
            print_profile(out, target, found)

    emit(document, print_all)


def check_compatibility(
    version: VersionView, artifacts: Mapping[str, ArtifactView] | None = None
) -> dict[str, str]:
    """Return each artifact's compatibility with this machine, as text by target."""
    from pt2hub.client.machine.host import host_for, this_host
    from pt2hub.domain.compatibility.assessment import assess_compatibility

    targets = {build.target: _target(build.target) for build in version.builds if build.artifact}
    host = this_host(gpu=any(target and target.device == "cuda" for target in targets.values()))
    needs = {name: _native(view) for name, view in (artifacts or {}).items()}

    def judge(name: str, target: Target) -> str:
        if damaged := damaged_text((artifacts or {}).get(name)):
            return damaged
        native = needs.get(name)
        return str(assess_compatibility(target, host_for(target, native, host), native))

    return {name: judge(name, target) if target else UNKNOWN for name, target in targets.items()}


def damaged_text(artifact: ArtifactView | None) -> str:
    """Return which parts of an artifact are damaged on the server; empty if it can be loaded."""
    parts = [item.part for item in artifact.damaged if item.part != "referrer"] if artifact else []
    return f"{_DAMAGED}: {', '.join(parts)}" if parts else ""


def _native(artifact: ArtifactView) -> NativeCode | None:
    """Return the requirements of an artifact's libraries; None if only a newer pt2hub can read them."""
    from pt2hub.domain.artifacts import NativeCode
    from pt2hub.domain.codec import decode
    from pt2hub.errors import BadResponse

    try:
        return decode(NativeCode, artifact.config.get("native"))
    except BadResponse:
        return None


def pull_command(version: VersionView, compatibility: Mapping[str, str]) -> str | None:
    """Return the command that pulls an artifact, preferably one that runs here; None if none can be pulled."""
    known = [
        name for name, state in compatibility.items() if state != UNKNOWN and not state.startswith(_DAMAGED)
    ]
    if not known:
        return None
    command = f"pt2hub pull {version.model}@{version.number}"
    return (
        command
        if any(state.startswith(_RUNS) for state in compatibility.values())
        else f"{command} --target {known[0]}"
    )


def print_version(
    out: Console,
    version: VersionView,
    compatibility: Mapping[str, str],
    aliases: list[str] | None = None,
    artifacts: Mapping[str, ArtifactView] | None = None,
) -> None:
    """Print a version with its builds."""
    from pt2hub.cli.tables import in_colour, print_fields
    from pt2hub.rendering.evaluations import evaluation_text
    from pt2hub.rendering.lineage import derivation_text
    from pt2hub.rendering.promotions import yank_text

    out.print(in_colour(f"{version.model}@{version.number}  {version.readiness}"), style="bold")
    fields = [
        ("yanked", yank_text(version.yanked).removeprefix("yanked ") if version.yanked else ""),
        ("aliases", ", ".join(aliases or ())),
        ("created", format_local_time(version.created_at) + _by(version.published_by)),
        ("weights", version.weights or ""),
        ("from", version.pins.get("weights_from", "")),
        *label_fields(version.labels),
        *((item.metric, evaluation_text(item)) for item in version.evaluations),
        *(("derived from", derivation_text(item)) for item in version.derived_from),
        *(("derived", f"{item.version} ({item.relation})") for item in version.derivatives),
        ("pull", pull_command(version, compatibility) or ""),
    ]
    print_fields(out, fields)
    if version.files:
        from pt2hub.cli.publishing.files import print_files

        print_files(out, version.files)
    for build in version.builds:
        _print_build(
            out,
            build,
            compatibility.get(build.target),
            (artifacts or {}).get(build.target),
            _requester(version, build),
        )


def _by(principal: Principal | None) -> str:
    return f" by {principal}" if principal else ""


def _requester(version: VersionView, build: BuildView) -> str:
    """Return who requested a build; empty for who published the version, which is shown above."""
    return "" if build.requested_by == version.published_by else str(build.requested_by or "")


def _print_build(
    out: Console, build: BuildView, state: str | None, artifact: ArtifactView | None, requester: str
) -> None:
    from pt2hub.cli.tables import in_colour, print_fields
    from pt2hub.rendering.sheets import attempts, measurement, provenance_rows, state_text
    from pt2hub.rendering.signatures import signature_rows
    from pt2hub.rendering.waits import format_note
    from pt2hub.wire.problems import from_dict

    out.print(in_colour(f"{build.target}  {state_text(build)}" + (f"  {state}" if state else "")))
    duration = f"  ({format_span(build.started_at, build.finished_at)})" if build.finished_at else ""
    running = build.steps[-1].name if build.steps and build.state == "running" else ""
    fields = [
        ("build", build.id + duration),
        ("artifact", build.artifact or ""),
        *(
            (*signature_rows(artifact), *provenance_rows(artifact), *_speed_rows(artifact))
            if artifact
            else ()
        ),
        ("measured", measurement(build.measurement)),
        ("requested by", requester),
        ("retried by", str(build.retried_by or "")),
        ("priority", str(build.priority or "")),
        ("step", running),
        ("attempt", attempts(build).removeprefix("attempt ")),
        ("waits" if build.state == "queued" else "note", format_note(build)),
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
            style="red",
        )


def _speed_rows(artifact: ArtifactView) -> list[tuple[str, str]]:
    from pt2hub.rendering.speeds import line

    target = _target(artifact.target)
    if target and not target.exists:  # its times and its verification are made up
        return [("verified", "not verified (no-op toolchain)"), ("speed", "not measured (no-op toolchain)")]
    return [("speed", line(artifact.measurements))]


def label_fields(labels: Sequence[LabelView]) -> list[tuple[str, str]]:
    """Return labels with the addresses that they lead to, where the values are not addresses themselves."""
    from pt2hub.domain.labels import label_link

    values = {item.key: item.value for item in labels}
    found = []
    for item in labels:
        link = label_link(item.key, values)
        text = f"{item.value}  {link}" if link and link not in item.value else item.value
        found.append((item.key, one_line(text)))
    return found


def _aliases(client: Client, version: VersionView) -> list[str]:
    return sorted(
        name for name, number in client.models.get(version.model).aliases.items() if number == version.number
    )


def _target(name: str) -> Target | None:
    from pt2hub.domain.targets import parse_target
    from pt2hub.errors import UnknownTarget

    try:
        return parse_target(name)
    except UnknownTarget:
        return None
