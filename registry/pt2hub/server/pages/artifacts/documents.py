"""JSON documents as text, in sections of limited length."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

MAX_CHARACTERS = 8 << 10
"""Per section."""
_SHORT = 60
_ENCODER = json.JSONEncoder(indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a document."""

    name: str
    text: str
    cut: bool

    @property
    def plain(self) -> bool:
        """Whether it is a single short value."""
        return len(self.text) <= _SHORT and "\n" not in self.text


def sections(document: Any) -> list[Section]:
    """Return the sections of a document, one per member of an object."""
    parts = document.items() if isinstance(document, dict) else [("document", document)]
    return [_section(str(name), value) for name, value in parts]


def whole(document: Any) -> Section:
    """Return a document as one section."""
    return _section("document", document)


def _section(name: str, value: Any) -> Section:
    text = ""
    try:
        for piece in _ENCODER.iterencode(value):
            text += piece
            if len(text) > MAX_CHARACTERS:
                return Section(name, text[:MAX_CHARACTERS], cut=True)
    except RecursionError:
        return Section(name, "(nested too deeply to be shown)", cut=False)
    return Section(name, text, cut=False)
