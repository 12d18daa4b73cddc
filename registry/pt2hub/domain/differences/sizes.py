"""Differences between the sizes of two artifacts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARTS = {"code": "code", "weights": "weights", "package": "single_file"}
"""Fields of an artifact with the digest; the size has the suffix `_bytes`."""


@dataclass(frozen=True, slots=True)
class SizeDifference:
    """The size of one part in both artifacts.

    Attributes:
        part: `code`, `weights`, or `package` (the single `model.pt2`).
        before: Size in the first artifact in bytes.
        after: Size in the second artifact in bytes.
        same: Whether both have the same content.
    """

    part: str
    before: int
    after: int
    same: bool


def compare_sizes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[SizeDifference, ...]:
    """Return the sizes of code, weights and package, given the fields of two artifacts."""
    return tuple(
        SizeDifference(part, before[f"{field}_bytes"], after[f"{field}_bytes"], before[field] == after[field])
        for part, field in _PARTS.items()
    )
