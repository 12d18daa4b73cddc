"""Differences between the program keys of two artifacts' regions: why a part's code was not reused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.domain.differences.fields import compare_fields, limit_fields
from pt2hub.domain.differences.program_keys import MAX_NAMED, code_fields, field_reasons
from pt2hub.domain.names import name_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pt2hub.domain.artifacts import Region
    from pt2hub.domain.differences.fields import FieldDifference
    from pt2hub.domain.differences.program_keys import KeyDifferences

_BETWEEN = "A part between regions"
_MAX_NAME_CHARS = 120


def add_regions(found: KeyDifferences, before: Sequence[Region], after: Sequence[Region]) -> KeyDifferences:
    """Return the differences between two program keys with those of the artifacts' parts."""
    if found.same or not before or not after:  # where one was compiled as a whole, the whole keys say so
        return found
    known = {region.key.digest for region in before}
    shared = sum(region.key.digest in known for region in after)
    reasons = [
        f"{shared} of the second's {len(after)} parts {'has' if shared == 1 else 'have'} a key of the first."
    ]
    fields: list[FieldDifference] = []
    for one, other in _pair(before, after):
        own = compare_fields(code_fields(one.key.fields), code_fields(other.key.fields))
        name = _name(other)
        reasons += [f"{name}: {reason}" for reason in field_reasons(own, "")]
        fields += [replace(item, path=f"regions.{name}.{item.path}") for item in own]
    listed, left_out = limit_fields((*found.fields, *fields))
    more = [f"{len(reasons) - MAX_NAMED - 1} more."] if len(reasons) > MAX_NAMED + 1 else []
    shown = (*found.reasons, *reasons[: MAX_NAMED + 1], *more)
    return replace(found, reasons=shown, fields=listed, left_out=found.left_out + left_out)


def _pair(before: Sequence[Region], after: Sequence[Region]) -> Iterator[tuple[Region, Region]]:
    """Yield each part with a new key, and the part of the first artifact that it corresponds to."""
    known, kept = ({region.key.digest for region in regions} for regions in (before, after))
    left = [region for region in before if region.key.digest not in kept]
    for region in after:
        if region.key.digest in known:
            continue
        closest = max(left, key=lambda item: _rank(item, region), default=None)
        if closest and _rank(closest, region):
            left.remove(closest)
            yield closest, region


def _rank(one: Region, other: Region) -> int:
    """Return how likely a part corresponds to another: by its first module, else by whether it is a module at all."""
    return (bool(one.modules) == bool(other.modules)) + (one.modules[:1] == other.modules[:1])


def _name(region: Region) -> str:
    name = name_modules(region.modules) or _BETWEEN
    return name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}..."
