"""Where the compiler took another kernel, and what that costs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from pt2hub.domain.digests import canonical_json
from pt2hub.wire.performance import AutotuneDifference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_Choice: TypeAlias = "Mapping[str, Any]"
_Kernel: TypeAlias = tuple[str, int | None]
_COUNTED = re.compile(r"(?P<family>.*\D)_(?P<count>\d+)")


def differences(before: Iterable[_Choice], after: Iterable[_Choice]) -> tuple[AutotuneDifference, ...]:
    """Operations for which the second side has another kernel than the first, in the second's order.

    An operation is told by its name and the shapes and dtypes of its inputs.

    Args:
        before: The rows of the first side's autotuning: `op`, `shapes`, `dtypes`, `candidate`, `milliseconds`,
            `chosen`.
        after: Those of the second.
    """
    one, other = _by_operation(before), _by_operation(after)
    compared = [_difference(one.get(place, []), other.get(place, [])) for place in {**other, **one}]
    return tuple(item for item in compared if item is not None)


def _by_operation(rows: Iterable[_Choice]) -> dict[bytes, list[_Choice]]:
    found: dict[bytes, list[_Choice]] = {}
    for row in rows:
        found.setdefault(canonical_json([row["op"], row["shapes"], row["dtypes"]]), []).append(row)
    return found


def _difference(before: Sequence[_Choice], after: Sequence[_Choice]) -> AutotuneDifference | None:
    was, now = _chosen(before), _chosen(after)
    if not (was or now) or (was and now and _kernel(was, before) == _kernel(now, after)):
        return None
    instead = _kernels(after).get(_kernel(was, before)) if was else None
    shown = now or was
    assert shown is not None, "one of them was chosen"
    before_ms = was["milliseconds"] if was else None
    after_ms = now["milliseconds"] if now else None
    return AutotuneDifference(
        op=shown["op"],
        shapes=shown["shapes"],
        before=was["candidate"] if was else None,
        after=now["candidate"] if now else None,
        before_ms=before_ms,
        after_ms=after_ms,
        cost_ms=after_ms - instead if after_ms is not None and instead is not None else None,
    )


def _chosen(rows: Sequence[_Choice]) -> _Choice | None:
    return next((row for row in rows if row["chosen"]), None)


def _kernels(rows: Sequence[_Choice]) -> dict[_Kernel, float]:
    """The time of each kernel of an operation; of one that was timed twice the first."""
    found: dict[_Kernel, float] = {}
    for row in rows:
        found.setdefault(_kernel(row, rows), row["milliseconds"])
    return found


def _kernel(row: _Choice, rows: Sequence[_Choice]) -> _Kernel:
    """What a kernel is called in any build.

    The compiler counts the kernels of a template over a whole process (`triton_mm_17`), so that an operation more or
    less before this one shifts them all: only the place among the operation's own says the same in another build.
    """
    family, count = _counted(row["candidate"])
    if count is None:
        return family, None
    counts = [other for kind, other in (_counted(item["candidate"]) for item in rows) if kind == family]
    return family, count - min(other for other in counts if other is not None)


def _counted(candidate: str) -> tuple[str, int | None]:
    match = _COUNTED.fullmatch(candidate)
    return (match["family"], int(match["count"])) if match else (candidate, None)
