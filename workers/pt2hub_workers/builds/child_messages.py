"""Messages of a build's child process, validated as untrusted input: users' code runs there."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pt2hub.domain.builds import STEPS
from pt2hub.domain.codec import decode
from pt2hub.domain.performance.autotune import AutotuneChoice
from pt2hub.errors import BadResponse, OutputRefused
from pt2hub_workers.builds.journal import StepState

T = TypeVar("T")
CHILDS_STEPS = frozenset(STEPS) - {"fetch", "upload", "publish"}
"""Steps of the child process; the worker itself does the others."""
LOG_LEVELS = frozenset({"info", "warning", "error", "output", "compiler"})
MAX_SECONDS = 10 * 86400.0
"""Longest accepted step: many times the longest build."""
MAX_NUMBER = 1e12
MAX_COUNT = 1 << 31
MAX_PARAMETERS = 64
"""Parameters of an autotune choice; torch's templates have about twenty."""
MAX_DETAIL = 500
"""Characters of a step's detail, a short line."""


@dataclass(frozen=True, slots=True)
class Step:
    """Progress report of a step."""

    name: str
    state: StepState
    seconds: float | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class MessageFields:
    """Fields of an artifact's config that only the build's process knows.

    Attributes:
        code_path: Path of the code layer, relative to the build's workspace.
        regions: `Region` as JSON, of each part with code of its own.
    """

    signature: dict[str, Any]
    constants: dict[str, Any]
    native: dict[str, Any]
    key: dict[str, Any]
    single_file: dict[str, Any]
    dtype: str | None
    compiler_processes: list[str]
    code_path: str
    weights_path: str
    autotuning: dict[str, Any] | None = None
    regions: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a build's process, in addition to the verified fields."""

    verification: dict[str, Any]
    autotune: list[dict[str, Any]] = field(default_factory=list)


def read(cls: type[T], value: Any) -> T:
    """Decode a part of a message."""
    try:
        return decode(cls, value)
    except (BadResponse, TypeError, ValueError) as error:
        raise output_refused(str(error)) from error


def read_step(message: dict[str, Any]) -> Step:
    """Decode a step's report."""
    step = read(Step, message)
    if step.name not in CHILDS_STEPS or step.state not in ("running", "done"):
        raise output_refused(f"unknown step {step.name[:40]!r} or state {str(step.state)[:40]!r}")
    if step.seconds is not None and not 0 <= step.seconds <= MAX_SECONDS:
        raise output_refused(f"invalid duration of step {step.name}")
    detail = step.detail[:MAX_DETAIL] if step.detail else None
    return Step(step.name, step.state, step.seconds, detail)


def read_result(value: Any) -> Result:
    """Decode a build's result."""
    result = read(Result, value)
    for choice in read(list[AutotuneChoice], result.autotune):
        _check_choice(choice)
    return result


def _check_choice(item: AutotuneChoice) -> None:
    """Refuse an autotune choice with impossible numbers or texts."""
    times = (item.milliseconds, item.precompile_seconds, item.benchmark_seconds)
    if any(time is not None and not (math.isfinite(time) and 0 <= time <= MAX_NUMBER) for time in times):
        raise output_refused(f"invalid time of candidate {item.candidate[:40]!r}")
    if (item.milliseconds is None) != bool(item.reason):
        raise output_refused(f"candidate {item.candidate[:40]!r} must have either a time or a reason")
    texts = (item.op, item.candidate, item.template, item.reason, *(item.parameters or {}))
    values = (item.parameters or {}).values()
    if any(len(text) > MAX_DETAIL for text in (*texts, *(item for item in values if isinstance(item, str)))):
        raise output_refused(f"text of candidate {item.candidate[:40]!r} is too long")
    if len(values) > MAX_PARAMETERS or not all(_is_parameter(value) for value in values):
        raise output_refused(f"invalid parameters of candidate {item.candidate[:40]!r}")
    if not all(0 <= number < MAX_COUNT for number in (item.rank, item.operation)):
        raise output_refused(f"invalid rank or operation of candidate {item.candidate[:40]!r}")


def _is_parameter(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int | float) and -MAX_NUMBER <= value <= MAX_NUMBER)


def read_log(message: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the level and the lines of a log message."""
    text, level = message.get("text"), message.get("level")
    if not isinstance(text, str):
        raise output_refused("a log line must be text")
    return (level if isinstance(level, str) and level in LOG_LEVELS else "info"), text.splitlines()


def output_refused(why: str) -> OutputRefused:
    """Return the error of an invalid message."""
    return OutputRefused(
        f"the build's process sent an invalid message: {why}",
        where="build",
        hint="A model must not write to the channel of its build. If this one does not, please report the build's log.",
    )
