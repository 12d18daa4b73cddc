"""Where the environments of a chart's lines changed, and what to call that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from pt2hub.domain.measurements import differing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pt2hub.server.pages.charts import Line

_TELLING = ("gpu", "cpu_model", "torch", "driver", "cuda", "triton")
"""Fields that name a change best, the best first."""
_FIELDS = {"gpu": "GPU", "cpu_model": "CPU", "cuda": "CUDA"}
_IDLE = re.compile(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|\b\d+-Core\b|@ ?[\d.]+GHz|\bNVIDIA\b")
"""What names of processors have in common."""
_BRIEF = 32
"""Letters of a value in a label."""
_ELSEWHERE, _CHANGED = "another environment", "environment changed"


@dataclass(frozen=True, slots=True)
class Break:
    """Where a target's environment changed: figures before and after are never compared.

    Attributes:
        line: The line that begins there.
        number: Its first version.
        at: When that was measured, ISO 8601.
        target: The target's name.
        said: What is different.
        label: What tells most of it, the old and the new: `driver 570.86 → 580.65`.
        short: That in a word or two: `driver changed`.
    """

    line: int
    number: int
    at: str
    target: str
    said: str
    label: str
    short: str


def breaks(lines: Sequence[Line]) -> Iterable[Break]:
    """Where the environments of targets changed; of one target its lines are the newest first.

    Reports come from wherever somebody runs an artifact: another environment there is no change of the target's.
    """
    places = {id(line): place for place, line in enumerate(lines)}
    measured = [line for line in lines if not line.series.reported]
    for target, same in groupby(measured, key=lambda line: line.series.target):
        oldest_first = list(same)[::-1]
        for old, new in pairwise(oldest_first):
            begin = new.series.points[0]
            differences = differing(old.series.environment, new.series.environment)
            is_after = begin.number >= old.series.points[-1].number
            other = "another environment" if is_after else "another environment, beside the earlier one"
            yield Break(
                places[id(new)],
                begin.number,
                begin.measured_at,
                target,
                f"{other}: {_differences(differences)}",
                *(_labels(differences) if is_after else (_ELSEWHERE, _ELSEWHERE)),
            )


def _labels(found: Mapping[str, tuple[Any, Any]]) -> tuple[str, str]:
    """The field that names a change best, long and short; others mostly follow from it."""
    field = next((name for name in _TELLING if name in found), None)
    if field is None:
        return _CHANGED, _CHANGED
    was, now = (_IDLE.sub(" ", _known(value)).split() for value in found[field])
    same = next((at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), 0)
    name = _FIELDS.get(field, field)
    return f"{name} {_brief(was)} → {_brief(now[same:])}", f"{name} changed"


def _brief(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 1]}…"


def _differences(found: Mapping[str, tuple[Any, Any]]) -> str:
    return "; ".join(
        f"{name.replace('_', ' ')} {_known(was)}, then {_known(now)}" for name, (was, now) in found.items()
    )


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)
