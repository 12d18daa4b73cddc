"""Moves an alias as soon as the model's policy, which lacked a measurement, lets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import BuildActive, GateRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.wire.shapes import AliasView


def move_when_measured(
    move: Callable[[], AliasView], follow: Callable[[Sequence[str]], object], alias: str
) -> AliasView:
    """Move an alias, waiting for measuring jobs as long as nothing but their figures is missing.

    The move is the same each time, with the version that the alias was on at first: if somebody else moves the alias
    meanwhile, the move is lost as any other.

    Args:
        move: Moves it.
        follow: Waits until the jobs with these ids are over.
        alias: How the alias is named, for the error.

    Raises:
        GateRefused: The policy refuses, and no measuring job is under way that could change it.
        AliasMoved: Somebody else moved the alias meanwhile.
        BuildActive: The time is over and a measuring job is not.
    """
    while True:
        try:
            return move()
        except GateRefused as refused:
            jobs = refused.context.get("waits_for")
            if not isinstance(jobs, list) or not jobs:
                raise
            waits_for = [str(job) for job in jobs]
        try:
            follow(waits_for)
        except BuildActive as late:
            raise BuildActive(
                f"{alias} was not moved. {late.message}",
                where=late.where,
                hint=f"Measuring goes on; repeat the move to wait again. {late.hint or ''}".strip(),
                context=late.context,
            ) from late
