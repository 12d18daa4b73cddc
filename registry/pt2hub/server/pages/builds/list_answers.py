"""First sentences of the lists of builds and of targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.quantities import format_bounded, format_count
from pt2hub.rendering.targets import short_target
from pt2hub.server.views.overview import FAILED_DAYS, MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.server.views.overview import Totals
    from pt2hub.wire.responses import BuildPage, TargetView

_MAX_NAMED = 2
"""Targets without a worker that are named."""


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """A first sentence. `tone` is as in the macro `answer`."""

    tone: str
    text: str


def compose_list_answer(
    found: BuildPage, totals: Totals, *, is_filtered: bool, is_first: bool = True
) -> ListAnswer:
    """Return what goes on: `2 builds run, 3 wait, 1 failed in the last 7 days.`; or how many builds match."""
    if is_filtered:
        count = len(found.builds)
        if not count:
            return ListAnswer("calm", "No builds match.")
        which = "first" if is_first else "next"
        more = f"The {which} {count} builds that match." if found.next or not is_first else ""
        return ListAnswer(
            "calm", more or f"{format_count(count, 'build')} {'matches' if count == 1 else 'match'}."
        )
    running, waiting, failed = (_bounded(count) for count in (totals.running, totals.queued, totals.failed))
    verb = "build runs" if totals.running == 1 else "builds run"
    waits = "waits" if totals.queued == 1 else "wait"
    text = f"{running} {verb}, {waiting} {waits}, {failed} failed in the last {FAILED_DAYS} days."
    return ListAnswer("bad" if totals.failed else "busy" if totals.running else "calm", text)


def compose_target_answer(targets: Sequence[TargetView]) -> ListAnswer:
    """Return how many targets have a worker, and which builds wait without one."""
    if not targets:
        return ListAnswer("warn", "No worker has offered a target yet.")
    live = sum(target.live_workers > 0 for target in targets)
    have = "has" if live == 1 else "have"
    head = f"{live} of {format_count(len(targets), 'target')} {have} a live worker"
    idle = [target for target in targets if target.queued and not target.live_workers]
    if not idle:
        waiting = sum(target.queued for target in targets)
        tail = f"{_wait(waiting)} for a free worker" if waiting else "no builds wait"
        return ListAnswer("good" if live else "warn", f"{head}; {tail}.")
    names = [target.name for target in targets]
    named = ", ".join(short_target(target.name, names) for target in idle[:_MAX_NAMED])
    more = f" and {len(idle) - _MAX_NAMED} more" if len(idle) > _MAX_NAMED else ""
    return ListAnswer(
        "bad", f"{head}; nothing serves {named}{more}: {_wait(sum(target.queued for target in idle))}."
    )


def urgency(target: TargetView) -> tuple[bool, bool, str]:
    """Return the sort key of a target: those whose builds wait in vain first, then those with a worker."""
    return not (target.queued and not target.live_workers), not target.live_workers, target.name


def _bounded(count: int) -> str:
    return format_bounded(count, MOST)


def _wait(count: int) -> str:
    return f"{format_count(count, 'build')} {'waits' if count == 1 else 'wait'}"
