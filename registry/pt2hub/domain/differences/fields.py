"""Differences between two documents, field by field, within size bounds; the documents are untrusted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Change: TypeAlias = Literal["added", "removed", "changed"]

MAX_FIELDS = 200
"""Fields that are listed; the others are counted."""
MAX_VALUE_CHARS = 400
_MAX_DEPTH = 12
_MISSING = object()


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field with different values.

    Attributes:
        path: Names of the field and of those around it, with dots (`compile.options.max_autotune`).
        change: `added` if only the second document has it, `removed` if only the first has it, else `changed`.
        before: Value in the first document; long values are cut and become text.
        after: Value in the second document, as `before`.
    """

    path: str
    change: Change
    before: Any = None
    after: Any = None


def compare_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[FieldDifference]:
    """Return the fields that differ, in the first document's order, then those that only the second has.

    Objects in lists are matched by their `name` if all have one, and else by position. A list of plain values is one field.
    """
    return list(_compare((), before, after))


def limit_fields(found: Iterable[FieldDifference]) -> tuple[tuple[FieldDifference, ...], int]:
    """Return the fields to list, and the number of the others."""
    fields = tuple(found)
    return fields[:MAX_FIELDS], max(0, len(fields) - MAX_FIELDS)


def count_changes(changes: Iterable[Change]) -> tuple[int, int, int]:
    """Return how many things were added, removed and changed."""
    found = Counter(changes)
    return found["added"], found["removed"], found["changed"]


def _compare(path: tuple[str, ...], before: Any, after: Any) -> Iterator[FieldDifference]:
    if _equal(before, after):
        return
    one, other = (_children(value, beside) for value, beside in ((before, after), (after, before)))
    if one is None or other is None or not {**one, **other} or len(path) >= _MAX_DEPTH:
        yield _difference(path, before, after)
        return
    for name in {**one, **other}:
        yield from _compare((*path, name), one.get(name, _MISSING), other.get(name, _MISSING))


def _children(value: Any, beside: Any) -> Mapping[str, Any] | None:
    """Return the fields of an object, or of a list with objects; None for other values.

    Args:
        beside: The other document's value: an object that only one document has is listed field by field.
    """
    if isinstance(value, Mapping):
        return value
    if value is _MISSING:
        return {} if isinstance(beside, Mapping) else None
    if not isinstance(value, list | tuple) or not any(isinstance(item, Mapping) for item in value):
        return None
    names = [item.get("name") if isinstance(item, Mapping) else None for item in value]
    if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
        return {str(name): item for name, item in zip(names, value, strict=True)}
    return {str(at): item for at, item in enumerate(value)}


def _equal(before: Any, after: Any) -> bool:
    """Return whether two JSON values are equal: `true` is not 1."""
    if isinstance(before, bool) != isinstance(after, bool):
        return False
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return len(before) == len(after) and all(map(_equal, before, after))
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() == after.keys() and all(_equal(before[name], after[name]) for name in before)
    return bool(before == after)


def _difference(path: tuple[str, ...], before: Any, after: Any) -> FieldDifference:
    change: Change = "added" if before is _MISSING else "removed" if after is _MISSING else "changed"
    return FieldDifference(_cut(".".join(path)), change, _shown(before), _shown(after))


def _shown(value: Any) -> Any:
    if value is _MISSING:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_VALUE_CHARS else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}..."
