"""Terminal output as HTML: text escaped, colours as classes of `builds.css`."""

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

    from pt2hub.domain.terminal import StyledRun, TextStyle

_GROUNDS = 8
"""Background colours; light and dark variants share one, on which all text colours are readable."""
_MAX_MARKS = 100
"""Search matches marked per line."""

Span = tuple[int, int]
"""Start and end."""


def as_html(line: str, pattern: re.Pattern[str] | None = None) -> Markup:
    """Return a line of terminal output as HTML, with matches of the pattern marked."""
    found = runs(line)
    if pattern is None:
        return Markup("".join(_span(run.text, run.look) for run in found))  # noqa: S704  # `_span` escapes
    text = "".join(run.text for run in found)
    marks = [match.span() for match in islice(pattern.finditer(text), _MAX_MARKS)]
    return Markup(  # noqa: S704  # `_span` escapes
        "".join(
            _span(part, run.look, marked=marked)
            for run, span in _locate_runs(found)
            for part, marked in _cut(text, span, marks)
        )
    )


def _span(text: str, look: TextStyle, *, marked: bool = False) -> str:
    tag, attribute = "mark" if marked else "span", _attribute(look)
    return f"<{tag}{attribute}>{escape(text)}</{tag}>" if marked or attribute else escape(text)


@lru_cache(512)
def _attribute(look: TextStyle) -> str:
    classes = " ".join(_classes(look))
    return f' class="{classes}"' if classes else ""


def _classes(look: TextStyle) -> Iterator[str]:
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


def _locate_runs(found: Sequence[StyledRun]) -> Iterator[tuple[StyledRun, Span]]:
    at = 0
    for run in found:
        yield run, (at, at + len(run.text))
        at += len(run.text)


def _cut(text: str, span: Span, marks: Sequence[Span]) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a run's text, split at marks, and whether each part is marked."""
    at, end = span
    for begin, stop in marks[max(0, bisect_right(marks, span) - 1) :]:
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
