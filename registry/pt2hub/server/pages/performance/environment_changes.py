"""Environment changes of a chart's lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from pt2hub.domain.performance.measurements import differing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pt2hub.wire.performance import SeriesView

_LABEL_FIELDS = ("gpu", "cpu_model", "torch", "driver", "cuda", "triton")
"""Fields for labels, most telling first."""
_FIELD_NAMES = {"gpu": "GPU", "cpu_model": "CPU", "cuda": "CUDA"}
_FILLER = re.compile(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|\b\d+-Core\b|@ ?[\d.]+GHz|\bNVIDIA\b")
"""Words without information in names of processors."""
_MAX_LABEL_VALUE = 32
"""Maximum length of a value in a label."""
_ELSEWHERE, _CHANGED = "another environment", "environment changed"


@dataclass(frozen=True, slots=True)
class EnvironmentChange:
    """A change of a target's environment; measurements before and after it are never compared.

    Attributes:
        at: Time of the first measurement after it, ISO 8601.
        description: All changed fields.
        label: The most telling field: `driver 570.86 → 580.65`.
        is_change: Whether the target moved to it; false where it is measured in two environments at a time.
    """

    line: int
    number: int
    at: str
    target: str
    description: str
    label: str
    is_change: bool = True


def find_environment_changes(lines: Sequence[SeriesView]) -> Iterable[EnvironmentChange]:
    """Yield the environment changes of each target, whose lines are newest first.

    Reports are left out: they come from any machine, so a different environment is not a change of the target's.
    """
    indices = {id(line): index for index, line in enumerate(lines)}
    measured = [line for line in lines if not line.reported]
    for target, same in groupby(measured, key=lambda line: line.target):
        oldest_first = list(same)[::-1]
        for old, new in pairwise(oldest_first):
            begin = new.points[0]
            differences = differing(old.environment, new.environment)
            is_after = begin.number >= old.points[-1].number
            other = "environment changed" if is_after else "another environment in parallel"
            yield EnvironmentChange(
                indices[id(new)],
                begin.number,
                begin.measured_at,
                target,
                f"{other}: {_differences(differences)}",
                _label(differences) if is_after else _ELSEWHERE,
                is_after,
            )


def _label(found: Mapping[str, tuple[Any, Any]]) -> str:
    """Return the old and new value of the most telling field."""
    field = next((name for name in _LABEL_FIELDS if name in found), None)
    if field is None:
        return _CHANGED
    was, now = (_FILLER.sub(" ", _known_text(value)).split() for value in found[field])
    same = next((at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), 0)
    return f"{_FIELD_NAMES.get(field, field)} {_shorten(was)} → {_shorten(now[same:])}"


def _shorten(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= _MAX_LABEL_VALUE else f"{text[: _MAX_LABEL_VALUE - 1]}…"


def _differences(found: Mapping[str, tuple[Any, Any]]) -> str:
    return "; ".join(
        f"{name.replace('_', ' ')} {_known_text(was)} → {_known_text(now)}"
        for name, (was, now) in found.items()
    )


def _known_text(value: object) -> str:
    return "unknown" if value is None else str(value)
