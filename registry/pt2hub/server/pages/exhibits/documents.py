"""JSON documents as text, part by part, each cut where it grows long."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

MOST = 8 << 10
"""Characters of a part."""
_SHORT = 60
_ENCODER = json.JSONEncoder(indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document.

    Attributes:
        name: Its key at the top level.
        text: Its value, as JSON with a line for each value.
        cut: Whether there is more of it.
    """

    name: str
    text: str
    cut: bool

    @property
    def plain(self) -> bool:
        """Whether it is a single short value."""
        return len(self.text) <= _SHORT and "\n" not in self.text


def sections(document: Any) -> list[Section]:  # noqa: ANN401  # any JSON value
    """The parts of a document; one that is no object is a single part."""
    parts = document.items() if isinstance(document, dict) else [("document", document)]
    return [_section(str(name), value) for name, value in parts]


def whole(document: Any) -> Section:  # noqa: ANN401  # any JSON value
    """A document as one part."""
    return _section("document", document)


def _section(name: str, value: Any) -> Section:  # noqa: ANN401  # any JSON value
    text = ""
    try:
        for piece in _ENCODER.iterencode(value):
            text += piece
            if len(text) > MOST:
                return Section(name, text[:MOST], cut=True)
    except RecursionError:
        return Section(name, "(nested too deeply to be shown)", cut=False)
    return Section(name, text, cut=False)
