"""What a build's process says, read as what it is: the words of users' code."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pt2hub.domain.builds import STEPS
from pt2hub.domain.codec import decode
from pt2hub.domain.measurements import Measurement
from pt2hub.domain.performance import METRICS
from pt2hub.domain.publications import AutotuneChoice
from pt2hub.errors import BadResponse, OutputRefused
from pt2hub_workers.journal import StepState

T = TypeVar("T")
CHILDS_STEPS = frozenset(STEPS) - {"fetch", "upload", "publish"}
"""The others are the worker's own."""
LOG_LEVELS = frozenset({"info", "warning", "error", "output", "compiler"})
MAX_SECONDS = 10 * 86400.0
"""Of a step: many times the longest build."""
BASELINE_METRICS = frozenset({"latency_p50", "speedup"})
BASELINES = frozenset({"eager", "torch_compile"})
"""What the artifact is timed beside where the model's source is built to measure it."""
MAX_MEASUREMENTS = 16
MAX_SAMPLES = 40
MAX_FIGURE = 1e12
MAX_BATCH = 1 << 40
MAX_COUNT = 1 << 31
MAX_PARAMETERS = 64
"""Of a candidate of autotuning: templates of torch have some twenty."""
MAX_DETAIL = 500
"""Characters of a step's detail: it is a short line."""


@dataclass(frozen=True, slots=True)
class Step:
    """How a step stands.

    Attributes:
        name: One of `CHILDS_STEPS`.
        state: `running` or `done`.
        seconds: Its time, once it is done.
        detail: A line of progress.
    """

    name: str
    state: StepState
    seconds: float | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    """What an artifact's config says that only the build's process knows.

    Attributes:
        signature: Encoded `Signature`, as the others.
        constants: `Constants`.
        native: `NativeCode`.
        key: `ProgramKey`.
        single_file: `SingleFile`.
        dtype: dtype override of the target, or None.
        compiler_processes: Programs that the build started.
        code_path: The code layer, relative to the build's room.
        weights_path: The weights layer, likewise.
        autotuning: What autotuning did, or None.
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


@dataclass(frozen=True, slots=True)
class Result:
    """What a build's process returns beside the fields that were proven.

    Attributes:
        verification: Of the report, what the build itself knows: tolerance and notes.
        autotune: Fields of `AutotuneChoice`.
    """

    verification: dict[str, Any]
    autotune: list[dict[str, Any]] = field(default_factory=list)


def read(cls: type[T], value: Any) -> T:  # noqa: ANN401  # whatever was sent
    """A part of a message.

    Raises:
        OutputRefused: It lacks something, or has it in another form.
    """
    try:
        return decode(cls, value)
    except (BadResponse, TypeError, ValueError) as error:
        raise refused(str(error)) from error


def read_step(message: dict[str, Any]) -> Step:
    """A step's report.

    Raises:
        OutputRefused: It is none.
    """
    step = read(Step, message)
    if step.name not in CHILDS_STEPS or step.state not in ("running", "done"):
        raise refused(f"{step.name[:40]!r} {str(step.state)[:40]!r} is no step")
    if step.seconds is not None and not 0 <= step.seconds <= MAX_SECONDS:
        raise refused("a step took a time that is none")
    detail = step.detail[:MAX_DETAIL] if step.detail else None
    return Step(step.name, step.state, step.seconds, detail)


def read_result(value: Any) -> Result:  # noqa: ANN401  # whatever was sent
    """What a build returned.

    Raises:
        OutputRefused: It is none.
    """
    result = read(Result, value)
    for choice in read(list[AutotuneChoice], result.autotune):
        _check_choice(choice)
    return result


@dataclass(frozen=True, slots=True)
class _Baselines:
    measurements: list[Measurement]


def read_baselines(value: Any) -> list[Measurement]:  # noqa: ANN401  # whatever was sent
    """Return the figures of eager and torch.compile out of what their process sent.

    Raises:
        OutputRefused: They are none.
    """
    found = read(_Baselines, value).measurements
    if len(found) > MAX_MEASUREMENTS:
        raise refused(f"{len(found)} measurements")
    for item in found:
        _check_measurement(item)
    return found


def _check_choice(item: AutotuneChoice) -> None:
    """Refuses a candidate of autotuning whose numbers or texts cannot be."""
    times = (item.milliseconds, item.precompile_seconds, item.benchmark_seconds)
    if any(time is not None and not (math.isfinite(time) and 0 <= time <= MAX_FIGURE) for time in times):
        raise refused(f"the candidate {item.candidate[:40]!r} has a time that is none")
    if (item.milliseconds is None) != bool(item.reason):
        raise refused(f"the candidate {item.candidate[:40]!r} has neither a time nor a reason, or both")
    texts = (item.op, item.candidate, item.template, item.reason, *(item.parameters or {}))
    values = (item.parameters or {}).values()
    if any(len(text) > MAX_DETAIL for text in (*texts, *(item for item in values if isinstance(item, str)))):
        raise refused(f"the candidate {item.candidate[:40]!r} has a text that is too long")
    if len(values) > MAX_PARAMETERS or not all(_is_parameter(value) for value in values):
        raise refused(f"the candidate {item.candidate[:40]!r} has parameters that are none")
    if not all(0 <= number < MAX_COUNT for number in (item.rank, item.operation)):
        raise refused(f"the candidate {item.candidate[:40]!r} has a number that is none")


def _is_parameter(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int | float) and -MAX_FIGURE <= value <= MAX_FIGURE)


def _check_measurement(item: Measurement) -> None:
    """Refuse what that process cannot have measured: the artifact's own figures come from others."""
    known = METRICS.get(item.metric)
    if (
        item.metric not in BASELINE_METRICS
        or item.subject not in BASELINES
        or known is None
        or item.unit != known.unit
    ):
        raise refused(f"{item.metric[:40]!r} of {item.subject[:40]!r} is no measurement of a baseline")
    samples = item.samples if item.samples is not None else [[]]
    lists = [inner for inner in samples if isinstance(inner, list) and len(inner) <= MAX_SAMPLES]
    if len(samples) != 1 or len(lists) != 1 or item.replicates not in (None, [item.value]):
        raise refused(f"the samples of {item.metric} of {item.subject} are none")
    if not all(_is_figure(value) for value in (item.value, *lists[0])):
        raise refused(f"{item.metric} of {item.subject} is no figure")
    if item.batch is not None and not 0 <= item.batch <= MAX_BATCH:
        raise refused(f"{item.metric} of {item.subject} has a batch size that is none")


def _is_figure(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 < value <= MAX_FIGURE


def read_log(message: dict[str, Any]) -> tuple[str, list[str]]:
    """Level and lines of what is to stand in the build's log.

    Raises:
        OutputRefused: It is no text.
    """
    text, level = message.get("text"), message.get("level")
    if not isinstance(text, str):
        raise refused("a log line is no text")
    return (level if isinstance(level, str) and level in LOG_LEVELS else "info"), text.splitlines()


def refused(why: str) -> OutputRefused:
    """The error of a message that is none.

    Args:
        why: What is wrong with it.
    """
    return OutputRefused(
        f"the build's process sent a message that is none: {why}",
        where="build",
        hint="A model must leave the channel of its build alone; if this one does, report it with the build's log.",
    )
