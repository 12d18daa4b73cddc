"""Operations for which the compiler chose another kernel, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pt2hub.domain.digests import canonical_json
from pt2hub.wire.performance import AutotuneDifference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_Choice: TypeAlias = "Mapping[str, Any]"


def differences(before: Iterable[_Choice], after: Iterable[_Choice]) -> tuple[AutotuneDifference, ...]:
    """Return the operations with different kernels, in the second side's order.

    An operation is identified by its name, its inputs' shapes and dtypes, and its index among equal ones. A kernel is
    identified by its template and parameters; the compiler's name for it means nothing in another build.

    Args:
        before: The first side's autotune table: fields of `AutotuneChoice`.
        after: The second side's.
    """
    one, other = _by_operation(before), _by_operation(after)
    compared = [_difference(one.get(key, []), other.get(key, [])) for key in {**other, **one}]
    return tuple(item for item in compared if item is not None)


def _by_operation(rows: Iterable[_Choice]) -> dict[tuple[bytes, int], list[_Choice]]:
    found: dict[tuple[bytes, int], list[_Choice]] = {}
    alike: dict[bytes, dict[int, int]] = {}
    for row in rows:
        what = canonical_json([row["op"], row["shapes"], row["dtypes"]])
        numbers = alike.setdefault(what, {})
        index = numbers.setdefault(row["operation"], len(numbers))
        found.setdefault((what, index), []).append(row)
    return found


def _difference(before: Sequence[_Choice], after: Sequence[_Choice]) -> AutotuneDifference | None:
    was, now = _chosen(before), _chosen(after)
    if not (was or now) or (was and now and _kernel(was) == _kernel(now)):
        return None
    instead = _times(after).get(_kernel(was)) if was else None
    shown = now or was
    assert shown is not None, "one of them was chosen"
    after_ms = now["milliseconds"] if now else None
    return AutotuneDifference(
        op=shown["op"],
        shapes=shown["shapes"],
        before=_name(was),
        after=_name(now),
        before_ms=was["milliseconds"] if was else None,
        after_ms=after_ms,
        cost_ms=after_ms - instead if after_ms is not None and instead is not None else None,
        before_parameters=was["parameters"] if was else None,
        after_parameters=now["parameters"] if now else None,
    )


def _chosen(rows: Sequence[_Choice]) -> _Choice | None:
    return next((row for row in rows if row["chosen"]), None)


def _times(rows: Sequence[_Choice]) -> dict[bytes, float]:
    """Return the time of each kernel of an operation, the first if it was timed twice."""
    found: dict[bytes, float] = {}
    for row in rows:
        if row["milliseconds"] is not None:
            found.setdefault(_kernel(row), row["milliseconds"])
    return found


def _kernel(row: _Choice) -> bytes:
    return canonical_json([_name(row), row["parameters"]])


def _name(row: _Choice | None) -> str | None:
    return (row["template"] or row["candidate"]) if row else None
