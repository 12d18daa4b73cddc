"""Build events: differences between two views of a build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildState
from pt2hub.wire.responses import BuildView, StepView, WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    OnEvent: TypeAlias = "Callable[[BuildEvent], None]"


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """A change of a build or of one of its steps.

    Attributes:
        build: The build after the change.
        step: The step that changed; None if the build itself did.
    """

    build: BuildView
    step: StepView | None = None


def over(build: BuildView) -> bool:
    """Return whether a build has ended; for an unknown state of a newer server, whether it has an end time."""
    try:
        return BuildState(build.state).final
    except ValueError:
        return build.finished_at is not None


def changes(before: BuildView | None, after: BuildView) -> Iterator[BuildEvent]:
    """Yield the changes between two views of a build.

    Args:
        before: The earlier view; None for the first.
    """
    if before is None or before.attempt != after.attempt:
        earlier: dict[str, StepView] = {}
    else:
        earlier = {step.name: step for step in before.steps}
    moved = before is None or (before.state, before.attempt) != (after.state, after.attempt)
    ended = over(after) or after.state == BuildState.QUEUED  # handed back: its steps came before
    if moved and not ended:
        yield BuildEvent(after)
    for step in after.steps:
        if earlier.get(step.name) != step:
            yield BuildEvent(after, step)
    if (moved and ended) or (before and not moved and _waits(before) != _waits(after)):
        yield BuildEvent(after)


def _waits(build: BuildView) -> tuple[WaitReason | None, int | None]:
    return build.wait, build.position
