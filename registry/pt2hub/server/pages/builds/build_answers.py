"""The sentence that answers how far a build is, how long it still takes, or why it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.builds import BuildKind, BuildState
from pt2hub.domain.terminal import plain
from pt2hub.rendering.quantities import format_duration, format_elapsed, format_remaining
from pt2hub.rendering.sheets import ordinal
from pt2hub.rendering.targets import short_target
from pt2hub.rendering.times import format_utc_time
from pt2hub.rendering.waits import compose_wait, is_lonely

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.pages.builds.steps import Steps
    from pt2hub.server.views.step_durations import StepDurations
    from pt2hub.wire.responses import BuildView

_DOING = {
    "fetch": "Fetching",
    "export": "Exporting",
    "key": "Computing the program key",
    "compile": "Compiling",
    "reuse": "Reusing code",
    "pack": "Packing",
    "verify": "Verifying",
    "upload": "Uploading",
    "measure": "Measuring",
    "publish": "Publishing",
}
_TONES = {
    BuildState.QUEUED: "calm",
    BuildState.RUNNING: "busy",
    BuildState.SUCCEEDED: "good",
    BuildState.FAILED: "bad",
    BuildState.CANCELLED: "warn",
}


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A fragment of the sentence.

    Attributes:
        elapsed: Seconds that count up after the text, or None.
        remaining: Seconds that count down after the text, or None.
        time: A time after the text, ISO 8601; may be empty.
        is_past: Whether how long ago that is says more than when.
    """

    text: str
    elapsed: float | None = None
    remaining: float | None = None
    time: str = ""
    is_past: bool = False

    def __str__(self) -> str:
        """Return it as text."""
        if self.elapsed is not None:
            return f"{self.text}{format_elapsed(self.elapsed)}"
        if self.remaining is not None:
            return f"{self.text}{format_remaining(self.remaining)}"
        return f"{self.text}{format_utc_time(self.time)}" if self.time else self.text


@dataclass(frozen=True, slots=True)
class BuildAnswer:
    """The first sentence of a build's page.

    Attributes:
        tone: As in the component `answer`.
        basis: The earlier builds behind its estimate; empty without one.
    """

    tone: str
    parts: tuple[AnswerPart, ...]
    basis: str = ""

    def __str__(self) -> str:
        """Return it as text."""
        return "".join(map(str, self.parts))


def answer_build(view: BuildView, steps: Steps, usual: StepDurations) -> BuildAnswer:
    """Return the first sentence of a build's page."""
    compose = {BuildState.QUEUED: _queued, BuildState.RUNNING: _running}
    state = BuildState(view.state)
    parts = compose[state](view, steps) if state in compose else _ended(view, steps)
    tone = "warn" if is_lonely(view) else _TONES[state]
    return BuildAnswer(tone, (*parts, AnswerPart(".")), _basis(view, steps, usual))


def _queued(view: BuildView, steps: Steps) -> Iterator[AnswerPart]:
    target = short_target(view.target)
    if view.wait and view.wait.code == "no_live_worker":
        yield AnswerPart(f"Waits for a worker of {target}: none is live")
        if view.wait.last_seen:
            yield AnswerPart("; last heartbeat ", time=view.wait.last_seen, is_past=True)
    elif view.wait and view.wait.code == "never_offered":
        pieces = [AnswerPart(piece.text) for piece in compose_wait(view.wait)]
        yield from (AnswerPart(f"Waits for a worker of {target}: "), *pieces)
    elif view.wait:
        first, *rest = compose_wait(view.wait)
        yield AnswerPart(first.text.capitalize(), time=first.time, is_past=first.is_past)
        yield from (AnswerPart(plain(piece.text), time=piece.time, is_past=piece.is_past) for piece in rest)
    else:
        place = f", {ordinal(view.position)} in the queue" if view.position else ""
        yield AnswerPart(f"Waits for a worker of {target}{place}")
    if steps.expected is not None:
        yield AnswerPart(f". It usually takes {format_elapsed(steps.expected)}")


def _running(_: BuildView, steps: Steps) -> Iterator[AnswerPart]:
    step = steps.current
    if step is None:
        yield AnswerPart("Starting for ", elapsed=steps.seconds)
    elif step.state == "running":
        yield AnswerPart(
            f"{_DOING.get(step.name, f'Running {plain(step.name)}')} for ", elapsed=step.seconds or 0.0
        )
    else:
        yield AnswerPart("Running for ", elapsed=steps.seconds)
    if steps.expected is None or steps.remaining is None:
        return
    usually = f"usually {format_elapsed(steps.expected)}"
    if step and step.is_late and step.expected is not None:
        yield AnswerPart(f", longer than usual ({format_elapsed(step.expected)})")
        if steps.remaining:
            yield AnswerPart(f"; {format_remaining(steps.remaining)} left after it")
    else:
        yield AnswerPart(", about ", remaining=steps.remaining)
        yield AnswerPart(f" left ({usually})")


def _ended(view: BuildView, steps: Steps) -> Iterator[AnswerPart]:
    reached = steps.current
    took = format_duration(steps.seconds) if view.attempt else ""
    if view.state == BuildState.SUCCEEDED:
        usually = f" (usually {format_duration(steps.expected)})" if steps.expected is not None else ""
        what = "Measured" if view.kind == BuildKind.MEASURE else "Succeeded"
        yield AnswerPart(f"{what} in {took}{usually}" if took else what)
        return
    where = f" in {reached.name}" if reached else ""
    after = f" after {took}" if took else ""
    if view.state == BuildState.CANCELLED:
        by = plain(view.cancellation or "cancelled")
        yield AnswerPart(f"{by[:1].upper()}{by[1:]}{where}{after}")
    else:
        code = (view.error or {}).get("code")
        yield AnswerPart(f"Failed{where}{after}" + (f": {plain(str(code))}" if code else ""))


def _basis(view: BuildView, steps: Steps, usual: StepDurations) -> str:
    """Return which builds the usual times are of."""
    if steps.expected is None:
        return ""
    what = "measuring job" if view.kind == BuildKind.MEASURE else "build"  # a rebuild's are those of builds
    of = "this model" if usual.same_model else "any model"
    if usual.builds == 1:
        return f"Usual times are those of the last {what} of {of} for this target."
    return f"Usual times are the medians of the last {usual.builds} {what}s of {of} for this target."
