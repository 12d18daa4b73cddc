"""Sections of a diff as text."""

from __future__ import annotations

from dataclasses import dataclass

_FIELDS = ("Field", "Before", "After")


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a diff.

    Attributes:
        name: Its name, which links lead to.
        title: Its heading.
        lines: Text before the table.
        headings: Headings of the table.
        rows: Rows of the table; may be empty.
        notes: Text after the table.
    """

    name: str
    title: str
    lines: tuple[str, ...] = ()
    headings: tuple[str, ...] = _FIELDS
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
