"""`pt2hub build`: builds a version for one more target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.builds import control
from pt2hub.cli.output import INTERRUPTED, emit, is_json, is_quiet, note, print_json
from pt2hub.cli.references import Reference  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.client.client import Client
    from pt2hub.wire.responses import BuildView

_FAILED = 1


@panels.command(
    panels.PUBLISHING,
    "pt2hub build vision/resnet18@3 --wait",
    "pt2hub build vision/resnet18@3 --target torch2.13-cpu-x86_64_v3",
)
def build(
    reference: Reference,
    *,
    target: Annotated[
        str | None, typer.Option(help="Name of the target; the one of this machine if omitted.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the build; the exit code is 1 unless it succeeds.")
    ] = False,
) -> None:
    """Build a version for one more target.

    Whether the version is ready does not change. A target that the version has already is not built again.
    """
    from pt2hub.cli.references import number_of
    from pt2hub.client.client import Client

    with Client() as client:
        model, number = number_of(client, reference)
        wanted = target or _native_target(client, model, number)
        version = client.versions.add_target(model, number, wanted)
        found = next(item for item in version.builds if item.target == wanted)
        if not wait:
            emit(found, lambda out: control.print_queued(out, [found]))
            return
        try:
            found = _follow(client, found)
        except KeyboardInterrupt:
            _explain_interrupt(found)
            raise typer.Exit(INTERRUPTED) from None
    failed = found.state != BuildState.SUCCEEDED
    document = encode(found) | ({"error": control.first_error([found])} if failed else {})
    emit(document, lambda out: _print_ended(out, found))
    if failed:
        raise typer.Exit(_FAILED)


def _native_target(client: Client, model: str, number: int) -> str:
    from pt2hub.client.machine.host import require_native_target

    on_gpu = any("-cu" in item.target for item in client.versions.get(model, number).builds)
    return require_native_target("cuda" if on_gpu else "cpu")


def _follow(client: Client, found: BuildView) -> BuildView:
    from pt2hub.client.builds.progress import progress

    with progress(quiet=is_quiet()) as display:
        return client.builds.follow([found], display)[0]


def _explain_interrupt(found: BuildView) -> None:
    if is_json():
        print_json(found)
        return
    note("", "Interrupted. The build continues on its worker.", f"  pt2hub logs -f {found.id}")


def _print_ended(out: Console, found: BuildView) -> None:
    from pt2hub.client.builds.progress import print_build

    print_build(out, found)
    if found.state == BuildState.SUCCEEDED:
        out.print(f"  To use it: pt2hub pull {found.model}@{found.number} --target {found.target}")
