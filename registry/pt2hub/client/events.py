"""What happens to builds, as a client sees it: two looks become the events between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildState
from pt2hub.wire.shapes import BuildView, StepView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    OnEvent: TypeAlias = "Callable[[BuildEvent], None]"


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """Something that changed in a build.

    Attributes:
        build: The build after the change.
        step: The step that began, moved or ended; None where the build itself changed.
    """

    build: BuildView
    step: StepView | None = None


def over(build: BuildView) -> bool:
    """Whether a build can change no more; a state of a newer server counts once the build has an end."""
    try:
        return BuildState(build.state).final
    except ValueError:
        return build.finished_at is not None


def changes(before: BuildView | None, after: BuildView) -> Iterator[BuildEvent]:
    """What happened between two looks at a build.

    Args:
        before: The earlier look, None at the first.
        after: The later look.
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


def _waits(build: BuildView) -> tuple[str | None, int | None, str | None]:
    return build.note, build.position, build.not_before
