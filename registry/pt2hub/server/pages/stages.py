"""The stages of a build: what it did, what it does, what comes, and how long each took."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pt2hub.domain.builds import MEASURING_STEPS, STEPS, BuildKind, BuildState
from pt2hub.rendering.quantities import quantity
from pt2hub.rendering.steps import remark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pt2hub.wire.shapes import BuildView, StepView

OPEN = frozenset({BuildState.QUEUED, BuildState.RUNNING})
_EITHER = {"compile", "reuse"}
_MINUTE = 60
_HOUR = 3600
_SHOWN_SECONDS = 0.01
"""What is less is not said of the time between stages: the two clocks of an attempt differ by more."""
_TENTHS = 1000


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage.

    Attributes:
        name: The step's name; of those that exclude each other, both.
        state: As of `StepView`; `waiting` where it may come, `not reached` where it never came.
        seconds: How long it took, or takes so far; None where it has not begun.
        detail: A short line of progress or result, or None.
        begins: Seconds from the attempt's beginning: where its part of the bar begins.
        share: Of the whole attempt, in tenths of a percent; with those of the others and of what was between them
            it adds up to all.
    """

    name: str
    state: str
    seconds: float | None = None
    detail: str | None = None
    begins: float = 0.0
    share: int = 0


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a build's latest attempt.

    Attributes:
        stages: In order.
        seconds: How long the attempt took, or takes so far.
        between: Seconds of these in which no stage ran: it waited for the device, or for its worker.
        between_share: Its share, as of stages.
    """

    stages: tuple[Stage, ...]
    seconds: float
    between: float
    between_share: int

    @property
    def parts(self) -> list[Stage]:
        """Those that the bar shows."""
        return [stage for stage in self.stages if stage.seconds]

    def __str__(self) -> str:
        """The bar in words."""
        told = [f"{stage.name} {lasting(stage.seconds or 0.0)}" for stage in self.parts]
        return ", ".join([*told, f"between them {lasting(self.between)}"] if self.between else told)


def any_open(builds: Iterable[BuildView]) -> bool:
    """Whether one of them can still change by itself."""
    return any(build.state in OPEN for build in builds)


def stages_of(view: BuildView) -> Stages:
    """The stages of a build's latest attempt; before it began, those that will come."""
    known = {step.name: step for step in view.steps}
    waiting = "waiting" if view.state == "running" or not view.attempt else "not reached"
    names = _expected(view, list(known))
    found = [_stage(known[name], _end(view)) if name in known else Stage(name, waiting) for name in names]
    return _laid_out(found, [known.get(name) for name in names], view)


def _laid_out(stages: Sequence[Stage], steps: Sequence[StepView | None], view: BuildView) -> Stages:
    """Stages where they were in their attempt. Of times that do not fit into it their order is kept."""
    begin = _begin(view)
    inside = sum(stage.seconds or 0.0 for stage in stages)
    whole = max(since(begin, _end(view)) or 0.0, inside)
    between = whole - inside
    *shares, rest = _shares([*(stage.seconds or 0.0 for stage in stages), between])
    placed, at, gap = [], 0.0, 0.0
    for stage, step, share in zip(stages, steps, shares, strict=True):
        began = since(begin, step.started_at) if step else None
        gap = min(max(gap, (began or 0.0) - at), between)
        placed.append(replace(stage, begins=at + gap, share=share))
        at += stage.seconds or 0.0
    return Stages(tuple(placed), whole, between if between >= _SHOWN_SECONDS else 0.0, rest)


def _shares(parts: Sequence[float]) -> list[int]:
    """Shares in tenths of a percent that add up to all: what rounding leaves goes to those that it took most from."""
    whole = sum(parts)
    if not whole:
        return [0] * len(parts)
    exact = [_TENTHS * part / whole for part in parts]
    shares = [int(share) for share in exact]
    short = sorted(range(len(parts)), key=lambda place: shares[place] - exact[place])
    for place in short[: _TENTHS - sum(shares)]:
        shares[place] += 1
    return shares


def lasting(seconds: float) -> str:
    """A duration for people: `250 ms`, `12.5 s`, `3 min 20 s`."""
    if seconds < _MINUTE:
        return quantity(round(seconds, 2 if seconds >= 1 else 6), "s")
    minutes, rest = divmod(round(seconds), _MINUTE)
    return f"{minutes} min {rest} s" if seconds < _HOUR else f"{minutes // _MINUTE} h {minutes % _MINUTE} min"


def since(begin: str | None, end: str | None = None) -> float | None:
    """Seconds between two times, until now where the second is None; None without the first."""
    if begin is None:
        return None
    last = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return max(0.0, (last - datetime.fromisoformat(begin)).total_seconds())


def _begin(view: BuildView) -> str | None:
    """When the latest attempt began."""
    return view.attempts[-1].started_at if view.attempts else view.started_at


def _end(view: BuildView) -> str | None:
    """When the latest attempt ended; None while it runs."""
    return view.attempts[-1].ended_at if view.attempts else view.finished_at


def _stage(step: StepView, end: str | None) -> Stage:
    """A stage that began; one that failed, or was cut off, says only when it did."""
    seconds = since(step.started_at, end) if step.seconds is None else step.seconds
    return Stage(step.name, step.state, seconds, remark(step))


def _expected(view: BuildView, known: Sequence[str]) -> list[str]:
    """Names of the stages in order: those that came, and where they usually stand those that did not."""
    usual = MEASURING_STEPS if view.kind == BuildKind.MEASURE else STEPS
    chosen = _EITHER & set(known)
    names = [
        name for name in usual if name in known or name not in _EITHER or not (chosen or name == "reuse")
    ]
    shown = ["compile or reuse" if name == "compile" and not chosen else name for name in names]
    if view.state == "succeeded":
        shown = [name for name in shown if name in known]
    return [*shown, *(name for name in known if name not in names)]
