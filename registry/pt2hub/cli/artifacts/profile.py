"""Profiles of calls as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from pt2hub.cli.tables import Cell
    from pt2hub.domain.performance.profiles import ProfileRow
    from pt2hub.wire.profiles import ProfileView

_NONE = "no profile; pt2hub measure records one, unless the spec sets measure: {profile: false}"


def print_profile(out: Console, target: str, view: ProfileView | None) -> None:
    """Print the kernels or operations of an artifact's calls, and the parts of the whole call."""
    from pt2hub.cli.tables import print_table
    from pt2hub.rendering.profiles import batches_differ, compare_whole_calls, origin
    from pt2hub.rendering.quantities import format_count

    if view is None:
        out.print(f"{target}: {_NONE}", highlight=False)
        return
    own, other = view.artifact, view.torch_compile
    batch = f" at batch {own.batch}" if own.batch is not None else ""
    out.print(f"{target}: {format_count(own.calls, 'call')}{batch}, traced", highlight=False)
    if other and batches_differ(own, other):
        out.print(f"torch.compile was traced at batch {other.batch}: compare shares only.", highlight=False)
    beside = ("COMPILE SHARE", "COMPILE MEAN") if other else ()
    heading = "KERNEL" if own.device == "cuda" else "OPERATION"
    rows: list[tuple[Cell, ...]] = [
        (row.name, *_times(row.artifact), *(_times(row.torch_compile) if other else ()), origin(row))
        for row in view.rows
    ]
    print_table(out, (heading, "SHARE", "MEAN", *beside, "COMPUTES"), rows, empty="Nothing was recorded.")
    parts = [
        (label, _time(mine), *((_time(theirs),) if other else ()))
        for label, mine, theirs in compare_whole_calls(own, other)
    ]
    print_table(out, ("WHOLE CALL", "ARTIFACT", *(("TORCH.COMPILE",) if other else ())), parts)


def _times(row: ProfileRow | None) -> tuple[str, str]:
    from pt2hub.rendering.quantities import format_share
    from pt2hub.rendering.times import NOTHING

    return (
        (format_share(row.share, decimals=1), _time(row.mean_us)) if row is not None else (NOTHING, NOTHING)
    )


def _time(microseconds: float | None) -> str:
    from pt2hub.rendering.quantities import quantity
    from pt2hub.rendering.times import NOTHING

    return NOTHING if microseconds is None else quantity(microseconds, "us")
