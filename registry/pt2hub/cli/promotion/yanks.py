"""`pt2hub yank` and `pt2hub unyank`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click
import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.wire.responses import VersionView

_Version = Annotated[
    str, typer.Argument(metavar="MODEL@REF", help="The version: team/name@3 or team/name@sha256:...")
]


@panels.command(panels.PUBLISHING, 'pt2hub yank vision/resnet18@3 --reason "wrong labels in training"')
def yank(
    version: _Version,
    *,
    reason: Annotated[
        str, typer.Option(help="Reason for the yank, shown to everybody who pulls the version.")
    ],
) -> None:
    """Withdraw a version: names without one and aliases pass it over.

    Its number and its digests still resolve, with a warning, so that nothing that is pinned breaks.
    Aliases that point to it must move first.
    """
    from pt2hub.cli.references import number_of
    from pt2hub.client.client import Client

    _check_arguments(version, reason)
    with Client() as client:
        view = client.versions.yank(*number_of(client, version), reason=reason)
    emit(view, lambda out: _print_yanked(out, view))


@panels.command(panels.PUBLISHING, 'pt2hub unyank vision/resnet18@3 --reason "the labels were right"')
def unyank(
    version: _Version,
    *,
    reason: Annotated[str, typer.Option(help="Reason why it is usable again, kept in its history.")],
) -> None:
    """End the yank of a version."""
    from pt2hub.cli.references import number_of
    from pt2hub.client.client import Client

    _check_arguments(version, reason)
    with Client() as client:
        view = client.versions.unyank(*number_of(client, version), reason=reason)
    emit(view, lambda out: out.print(f"{view.model}@{view.number} is not yanked any more."))


def _check_arguments(version: str, reason: str) -> None:
    if "@" not in version:
        raise click.UsageError(f"The version is required, such as {version}@3.")
    if not reason.strip():
        raise click.UsageError('--reason "..." is required; it is kept in the history.')


def _print_yanked(out: Console, view: VersionView) -> None:
    from pt2hub.rendering.promotions import yank_text

    if view.yanked:
        out.print(one_line(f"{view.model}@{view.number} is {yank_text(view.yanked)}"))
