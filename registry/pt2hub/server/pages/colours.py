"""Lines that programs printed, as HTML: their text escaped, their colours as classes of `builds.css`."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from pt2hub.domain.terminal import runs

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

    from pt2hub.domain.terminal import Look, Run

_GROUNDS = 8
"""Light and dark variants of a colour share one ground, on which every ink can be read."""
_MOST_MARKS = 100
"""In one line; a letter may stand in it thousands of times."""

Place = tuple[int, int]
"""Where something begins and ends."""


def as_html(line: str, pattern: re.Pattern[str] | None = None) -> Markup:
    """A line that a program printed.

    Args:
        line: As it was printed.
        pattern: What to mark in it.
    """
    found = runs(line)
    if pattern is None:
        return Markup("".join(_span(run.text, run.look) for run in found))  # noqa: S704  # `_span` escapes
    text = "".join(run.text for run in found)
    marks = [match.span() for match in islice(pattern.finditer(text), _MOST_MARKS)]
    return Markup(  # noqa: S704  # likewise
        "".join(
            _span(part, run.look, marked=marked)
            for run, place in _placed(found)
            for part, marked in _cut(text, place, marks)
        )
    )


def _span(text: str, look: Look, *, marked: bool = False) -> str:
    tag, attribute = "mark" if marked else "span", _attribute(look)
    return f"<{tag}{attribute}>{escape(text)}</{tag}>" if marked or attribute else escape(text)


@lru_cache(512)
def _attribute(look: Look) -> str:
    classes = " ".join(_classes(look))
    return f' class="{classes}"' if classes else ""


def _classes(look: Look) -> Iterator[str]:
    ink, ground = look.ink, look.ground
    if look.swapped:
        ink, ground = ground, ink
        if ground is None:
            yield "t-swapped"
            ink = None
    if ink is not None:
        yield f"ink-{ink}"
    if ground is not None:
        yield f"on-{ground % _GROUNDS}"
    for name in ("bold", "faint", "italic", "underlined", "struck"):
        if getattr(look, name):
            yield f"t-{name}"


def _placed(found: Sequence[Run]) -> Iterator[tuple[Run, Place]]:
    at = 0
    for run in found:
        yield run, (at, at + len(run.text))
        at += len(run.text)


def _cut(text: str, place: Place, marks: Sequence[Place]) -> Iterator[tuple[str, bool]]:
    """A run's text, cut where marks begin and end, and whether each part is marked."""
    at, end = place
    for begin, stop in marks[max(0, bisect_right(marks, place) - 1) :]:
        if begin >= end:
            break
        if stop <= at:
            continue
        if begin > at:
            yield text[at:begin], False
        at = max(at, begin)
        yield text[at : min(stop, end)], True
        at = min(stop, end)
    if at < end:
        yield text[at:end], False
