"""Single values of a report: texts, times, names of artifacts, and what a figure can be."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.names import Reference
from pt2hub.domain.performance import METRIC_PATTERN, METRICS, is_metric
from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput, UnknownMetric, UnknownTarget

if TYPE_CHECKING:
    from pt2hub.domain.performance import Metric

_DIGEST = re.compile(DIGEST_PATTERN)
_TORCH = re.compile(r"\d+\.\d+[0-9A-Za-z.+_-]*", re.ASCII)
_SUBJECT = re.compile(r"[a-z_]{1,32}")
_DAY = 86_400
_FARTHEST = 1e100
"""Ratios and squares of figures up to here are still numbers; nothing that is measured comes near."""
_BOUNDS: dict[str, tuple[float, float, str]] = {
    "ms": (1e-6, _DAY * 1e3, "a nanosecond, which clocks hardly tell apart, to a day"),
    "s": (1e-9, 30 * _DAY, "a nanosecond, which clocks hardly tell apart, to thirty days"),
    "1/s": (1e-9, 1e12, "one in thirty years to a thousand in each nanosecond"),
    "B": (0, 2**50, "0 to 2^50 bytes, a petabyte"),
    "1": (0, 1e9, "0 to 1e9"),
}
"""What a figure of a known metric can be, by its unit: lowest, highest, and that in words. Times and rates of 0 are
those of a clock that did not move: ratios to them are none."""
_ROUNDING = 0.01
"""Of a figure beside its replicates: who writes figures down may round them."""
_POSITIVE = "speedup"
_LEAST_SPEEDUP = 1e-9


def readable(text: str) -> str:
    """Lets a text pass that shows what it is: what cannot be seen would make two equal-looking names differ."""
    if not text.isprintable() or text != text.strip():
        raise PydanticCustomError("invalid_input", "only characters that can be seen belong here")
    return text


def moment(value: object) -> object:
    """A time from its text, which must say its zone: a clock's local time is another time elsewhere."""
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        read = None
    if read is None or read.tzinfo is None:
        raise _refused("a time with its zone belongs here", value, "such as 2026-11-22T11:00:00+01:00")
    return read


def artifact(text: str) -> str:
    """Lets a digest pass, or a reference that names the same artifact for ever."""
    if _DIGEST.fullmatch(text):
        return text
    allowed = "sha256:<64 digits>, team/name@sha256:<64 digits>, or team/name@3 with a target"
    try:
        wanted = Reference.parse(text)
    except InvalidInput as exc:
        raise _refused("this names no artifact", text, allowed) from exc
    if wanted.prefix:
        raise _refused("the whole digest belongs here", text, allowed)
    if not (wanted.number or wanted.digest):
        raise _refused("aliases and newest versions move; say which version was measured", text, allowed)
    return text


def target(name: str) -> str:
    """Lets the name of a target pass."""
    try:
        return parse_target(name).name
    except UnknownTarget as exc:
        allowed = "such as torch2.13-cpu-x86_64_v4 or torch2.11-cu130-sm90"
        raise PydanticCustomError(
            UnknownTarget.code, "there is no such target", {"given": name, "allowed": allowed}
        ) from exc


def metric(name: str) -> str:
    """Lets a metric's name pass."""
    if not is_metric(name):
        allowed = "lower-case letters, digits and _ after a letter, 64 at most, such as latency_p50"
        raise PydanticCustomError(
            UnknownMetric.code, "this can be no metric's name", {"given": name, "allowed": allowed}
        )
    return name


def torch_release(text: str) -> str:
    """Lets a release of torch pass: a target names its first two numbers."""
    if not _TORCH.fullmatch(text):
        raise _refused("a release of torch belongs here", text, "such as 2.13.0+cpu")
    return text


def subject(name: str) -> str:
    """Lets the name of what was measured pass."""
    if not _SUBJECT.fullmatch(name):
        raise _refused(
            "this can be no subject", name, "artifact, eager, torch_compile, or 1 to 32 of a-z and _"
        )
    return name


Key = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(readable)]
Words = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(readable)]
Unit = Annotated[str, Field(min_length=1, max_length=16), AfterValidator(readable)]
Moment = Annotated[datetime, BeforeValidator(moment)]
ArtifactName = Annotated[str, Field(max_length=400), AfterValidator(artifact)]
TargetName = Annotated[str, Field(max_length=200), AfterValidator(target)]
MetricName = Annotated[
    str, Field(json_schema_extra={"pattern": f"^{METRIC_PATTERN}$"}), AfterValidator(metric)
]
SubjectName = Annotated[str, Field(json_schema_extra={"pattern": "^[a-z_]{1,32}$"}), AfterValidator(subject)]
TorchRelease = Annotated[str, Field(max_length=64), AfterValidator(torch_release)]
Figure = Annotated[float, Field(ge=-_FARTHEST, le=_FARTHEST, allow_inf_nan=False)]


def check_unit(name: str, unit: str) -> None:
    """Refuses another unit than a known metric has; converting it would hide a mistake as often as mend it.

    Raises:
        PydanticCustomError: With the code of `UnknownMetric`.
    """
    known = METRICS.get(name)
    if known and unit != known.unit:
        message = f"{name} has another unit; convert the figure, or report a metric of your own name"
        context = {"message": message, "path": "unit", "given": unit, "allowed": known.unit}
        raise PydanticCustomError(UnknownMetric.code, "{message}", context)


def check_figures(name: str, value: float, replicates: list[float] | None) -> None:
    """Refuses a figure that its replicates do not stand for, and of a known metric what nothing can have.

    Raises:
        PydanticCustomError: The first of them.
    """
    _check_known(name, value, replicates)
    if not replicates:
        return
    least, most = min(replicates), max(replicates)
    rounding = _ROUNDING * max(abs(least), abs(most))
    if not least - rounding <= value <= most + rounding:
        allowed = f"{least:g} to {most:g}, such as their median"
        raise _wrong("the figure lies outside of its replicates", "value", given=value, allowed=allowed)


def _check_known(name: str, value: float, replicates: list[float] | None) -> None:
    known = METRICS.get(name)
    if known is None:
        return
    lowest, highest, words = _bounds(known)
    for place, figure in enumerate((value, *(replicates or ()))):
        if not lowest <= figure <= highest:
            message = f"{name} cannot be negative" if figure < 0 else f"{name} cannot be this"
            path = f"replicates[{place - 1}]" if place else "value"
            raise _wrong(message, path, given=figure, allowed=words)


def _bounds(known: Metric) -> tuple[float, float, str]:
    lowest, highest, words = _BOUNDS[known.unit]
    if known.name == _POSITIVE:
        return _LEAST_SPEEDUP, highest, f"{_LEAST_SPEEDUP:g} to {highest:g}"
    return lowest, highest, words


def check_samples(samples: list[list[float]] | None, most: int) -> None:
    """Refuses more single calls than are worth keeping.

    Raises:
        PydanticCustomError: There are more.
    """
    count = sum(map(len, samples or ()))
    if count > most:
        raise _wrong("these are too many single calls", "samples", given=count, allowed=f"{most} at most")


def _refused(message: str, given: object, allowed: str) -> PydanticCustomError:
    context = {"message": message, "given": given, "allowed": allowed}
    return PydanticCustomError("invalid_input", "{message}", context)


def _wrong(message: str, path: str, *, given: object, allowed: str) -> PydanticCustomError:
    context = {"message": message, "path": path, "given": given, "allowed": allowed}
    return PydanticCustomError("invalid_input", "{message}", context)
