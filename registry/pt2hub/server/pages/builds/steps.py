"""Steps of a build: past, current and expected, with their durations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub.domain.builds import MEASURING_STEPS, STEPS, UNFINISHED, BuildKind, BuildState
from pt2hub.rendering.quantities import format_duration
from pt2hub.rendering.steps import remark
from pt2hub.rendering.times import count_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pt2hub.server.views.step_durations import StepDurations
    from pt2hub.wire.responses import BuildView, StepView

_EITHER = {"compile", "reuse"}
EITHER = "compile or reuse"
"""The step that is either, as long as neither has started."""
_LATE, _LATE_S = 1.2, 2.0
"""A step is late if it takes longer than usual by this factor and these seconds."""
_MIN_BETWEEN_S = 0.01
"""Shorter times between steps are not shown: the two clocks of an attempt differ by more."""
_PER_MILLE = 1000


@dataclass(frozen=True, slots=True)
class Step:
    """A step.

    Attributes:
        state: As in `StepView`, `waiting` if it may still start, or `not reached`.
        seconds: Duration so far, None before it starts.
        detail: A short line of progress or result.
        start: Start of its part of the bar, in seconds after the attempt's start.
        share: Share of the attempt, in tenths of a percent.
        expected: Usual duration in seconds, None if unknown.
    """

    name: str
    state: str
    seconds: float | None = None
    detail: str | None = None
    start: float = 0.0
    share: int = 0
    expected: float | None = None

    @property
    def is_late(self) -> bool:
        """Whether it takes clearly longer than usual."""
        return self.expected is not None and (self.seconds or 0.0) > _LATE * self.expected + _LATE_S

    @property
    def progress(self) -> float | None:
        """Elapsed over usual time, at most 1; None where no estimate holds."""
        if not self.expected or self.seconds is None or self.seconds > self.expected:
            return None
        return self.seconds / self.expected


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a build's latest attempt.

    Attributes:
        seconds: Duration of the attempt so far, by the database's clock.
        between: Seconds without a running step: waiting for the device or the worker.
        expected: Usual duration of all its steps, None if that of one is unknown.
    """

    steps: tuple[Step, ...]
    seconds: float
    between: float
    between_share: int
    expected: float | None = None

    @property
    def parts(self) -> list[Step]:
        """The steps with a part in the bar."""
        return [step for step in self.steps if step.seconds]

    @property
    def current(self) -> Step | None:
        """The step that runs, or the last one that was reached."""
        reached = [step for step in self.steps if step.state not in {"waiting", "not reached"}]
        running = [step for step in reached if step.state == "running"]
        return next(iter([*running, *reversed(reached)]), None)

    @property
    def remaining(self) -> float | None:
        """Seconds that the open steps usually still take, None if unknown."""
        if self.expected is None:
            return None
        left = [step for step in self.steps if step.state in {"running", "waiting"}]
        return sum(max(0.0, (step.expected or 0.0) - (step.seconds or 0.0)) for step in left)

    def __str__(self) -> str:
        """Return the bar as text."""
        texts = [f"{step.name} {format_duration(step.seconds or 0.0)}" for step in self.parts]
        return ", ".join(
            [*texts, f"between steps {format_duration(self.between)}"] if self.between else texts
        )


def any_open(builds: Iterable[BuildView]) -> bool:
    """Return whether one of the builds is queued or running."""
    return any(build.state in UNFINISHED for build in builds)


def steps_of(view: BuildView, usual: StepDurations | None = None) -> Steps:
    """Return the steps of a build's latest attempt, or the expected ones before it starts.

    Args:
        usual: Durations of earlier builds, and the time by the database's clock.
    """
    known = {step.name: step for step in view.steps}
    waiting = "waiting" if view.state == "running" or not view.attempt else "not reached"
    names = _expected_steps(view, list(known))
    end = _end(view) or (usual.now if usual else None)
    found = [_step(known[name], end) if name in known else Step(name, waiting) for name in names]
    timed = [replace(step, expected=_usual_seconds(step.name, usual)) for step in found] if usual else found
    return _lay_out(timed, [known.get(name) for name in names], view, end)


def _usual_seconds(name: str, usual: StepDurations) -> float | None:
    """Return the usual duration of a step; of the more frequent one as long as either may run."""
    if name != EITHER:
        return usual.medians.get(name)
    frequent = max(sorted(_EITHER), key=lambda item: usual.counts.get(item, 0))
    return usual.medians.get(frequent)


def _lay_out(
    steps: Sequence[Step], views: Sequence[StepView | None], view: BuildView, end: str | None
) -> Steps:
    """Place steps within their attempt. Times that do not fit keep their order."""
    begin = _begin(view)
    whole = (count_seconds(begin, end) or 0.0) if begin else 0.0
    steps = _within(steps, whole) if view.state == BuildState.RUNNING else steps
    inside = sum(step.seconds or 0.0 for step in steps)
    whole = max(whole, inside)
    between = whole - inside
    *shares, rest = _shares([*(step.seconds or 0.0 for step in steps), between])
    placed, at, gap = [], 0.0, 0.0
    for step, found, share in zip(steps, views, shares, strict=True):
        started = count_seconds(begin, found.started_at) if found else None
        gap = min(max(gap, (started or 0.0) - at), between)
        placed.append(replace(step, start=at + gap, share=share))
        at += step.seconds or 0.0
    known = [step.expected for step in placed if step.expected is not None]
    usual = sum(known) if known and len(known) == len(placed) else None
    return Steps(tuple(placed), whole, between if between >= _MIN_BETWEEN_S else 0.0, rest, usual)


def _within(steps: Sequence[Step], whole: float) -> list[Step]:
    """Return the steps with the running one inside its attempt: its start is of the worker's clock."""
    ended = sum(step.seconds or 0.0 for step in steps if step.state != "running")
    return [
        replace(step, seconds=min(step.seconds or 0.0, max(0.0, whole - ended)))
        if step.state == "running"
        else step
        for step in steps
    ]


def _shares(parts: Sequence[float]) -> list[int]:
    """Return shares in tenths of a percent that add up to 100 %; the largest rounding losses are made up first."""
    whole = sum(parts)
    if not whole:
        return [0] * len(parts)
    exact = [_PER_MILLE * part / whole for part in parts]
    shares = [int(share) for share in exact]
    short = sorted(range(len(parts)), key=lambda index: shares[index] - exact[index])
    for index in short[: _PER_MILLE - sum(shares)]:
        shares[index] += 1
    return shares


def _begin(view: BuildView) -> str | None:
    """Return when the latest attempt started."""
    return view.attempts[-1].started_at if view.attempts else view.started_at


def _end(view: BuildView) -> str | None:
    """Return when the latest attempt ended; None while it runs."""
    return view.attempts[-1].ended_at if view.attempts else view.finished_at


def _step(step: StepView, end: str | None) -> Step:
    """Return a started step; if it failed or was interrupted, it ends with its attempt."""
    seconds = count_seconds(step.started_at, end) if step.seconds is None else step.seconds
    return Step(step.name, step.state, seconds, remark(step))


def _expected_steps(view: BuildView, known: Sequence[str]) -> list[str]:
    """Return the names of all steps in their usual order, followed by unusual ones."""
    usual = MEASURING_STEPS if view.kind == BuildKind.MEASURE else STEPS
    chosen = _EITHER & set(known)
    names = [
        name for name in usual if name in known or name not in _EITHER or not (chosen or name == "reuse")
    ]
    shown = [EITHER if name == "compile" and not chosen else name for name in names]
    if view.state == "succeeded":
        shown = [name for name in shown if name in known]
    return [*shown, *(name for name in known if name not in names)]
