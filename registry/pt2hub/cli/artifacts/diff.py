"""`pt2hub diff`: the differences between two artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.wire.differences import DiffView


@panels.command(
    panels.READING,
    "pt2hub diff vision/resnet18@prod vision/resnet18@3",
    "pt2hub diff vision/resnet18@3 vision/resnet18@3 --target torch2.12-cpu-x86_64_v3 --with-target "
    "torch2.13-cpu-x86_64_v3",
    "pt2hub diff vision/resnet18@2 vision/resnet18@3 --json",
)
def diff(
    before: Annotated[
        str,
        typer.Argument(help="The first artifact: team/name@3, team/name@prod or team/name@sha256:..."),
    ],
    after: Annotated[str, typer.Argument(help="The second artifact, in the same form.")],
    *,
    target: Annotated[
        str | None,
        typer.Option(help="Target of the artifacts; optional if the versions have one target in common."),
    ] = None,
    with_target: Annotated[
        str | None,
        typer.Option(help="Target of the second artifact, if it differs (another torch, another GPU)."),
    ] = None,
) -> None:
    """Show how two artifacts differ, and why code was not reused.

    Sections: program key, spec, graph, kernels, autotune choices, sizes, speed and memory, numerics.
    A section without data says why.
    """
    from pt2hub.client.client import Client

    with Client() as client:
        found = client.artifacts.diff(before, after, target=target, with_target=with_target)
    emit(found, lambda out: _print_diff(out, found))


def _print_diff(out: Console, view: DiffView) -> None:
    from pt2hub.cli.output import one_line
    from pt2hub.cli.tables import print_fields, print_table
    from pt2hub.rendering.differences import sections, side_names

    print_fields(out, list(zip(("before", "after"), side_names(view.comparison), strict=True)), indent="")
    for section in sections(view):
        out.print()
        out.print(section.title, style="bold")
        for line in section.lines:
            out.print(one_line(line), highlight=False)
        if section.rows:
            print_table(out, [heading.upper() for heading in section.headings], section.rows)
        for line in section.notes:
            out.print(one_line(line), highlight=False)
