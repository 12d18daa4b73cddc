"""The stages of a build: what it did, what it does, what comes, and how long each took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pt2hub.domain.builds import STEPS, BuildKind
from pt2hub.wire.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.wire.shapes import BuildView, StepView

_MEASURING = ("fetch", "measure", "publish")
_EITHER = {"compile", "reuse"}
_MINUTE = 60
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage.

    Attributes:
        name: The step's name; of those that exclude each other, both.
        state: `running`, `done`, `failed`; `waiting` where it may come, `not reached` where it never came.
        seconds: How long it took, or takes so far; None where it has not begun.
        detail: A short line of progress or result, or None.
        begins: Seconds of the stages before it: where its part of the bar begins.
    """

    name: str
    state: str
    seconds: float | None = None
    detail: str | None = None
    begins: float = 0.0


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a build's latest attempt.

    Attributes:
        stages: In order.
        seconds: How long all of them took so far.
    """

    stages: tuple[Stage, ...]
    seconds: float

    @property
    def parts(self) -> list[Stage]:
        """Those that the bar shows."""
        return [stage for stage in self.stages if stage.seconds]

    def __str__(self) -> str:
        """The bar in words."""
        return ", ".join(f"{stage.name} {lasting(stage.seconds or 0.0)}" for stage in self.parts)


def stages_of(view: BuildView) -> Stages:
    """The stages of a build's latest attempt; before it began, those that will come."""
    known = {step.name: step for step in view.steps}
    waiting = "waiting" if view.state == "running" or not view.attempt else "not reached"
    found: list[Stage] = []
    begins = 0.0
    for name in _expected(view, list(known)):
        stage = _stage(known[name], begins, _end(view)) if name in known else Stage(name, waiting)
        begins += stage.seconds or 0.0
        found.append(stage)
    return Stages(tuple(found), begins)


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


def _end(view: BuildView) -> str | None:
    """When the latest attempt ended; None while it runs."""
    return view.attempts[-1].ended_at if view.attempts else view.finished_at


def _stage(step: StepView, begins: float, end: str | None) -> Stage:
    """A stage that began; one that failed, or was cut off, says only when it did."""
    seconds = since(step.started_at, end) if step.seconds is None else step.seconds
    return Stage(step.name, step.state, seconds, step.detail, begins)


def _expected(view: BuildView, known: Sequence[str]) -> list[str]:
    """Names of the stages in order: those that came, and where they usually stand those that did not."""
    usual = _MEASURING if view.kind == BuildKind.MEASURE else STEPS
    chosen = _EITHER & set(known)
    names = [
        name for name in usual if name in known or name not in _EITHER or not (chosen or name == "reuse")
    ]
    shown = ["compile or reuse" if name == "compile" and not chosen else name for name in names]
    if view.state == "succeeded":
        shown = [name for name in shown if name in known]
    return [*shown, *(name for name in known if name not in names)]
