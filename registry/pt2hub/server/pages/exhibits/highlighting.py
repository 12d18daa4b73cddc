"""Generated sources in colours: lines as markup with classes, everything in them escaped.

The text is hostile until proven otherwise, and the lexers are regular expressions that others wrote: they get few
lines at a time, no long runs of blanks, and little time; what is left then is shown without colours.
"""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from markupsafe import Markup, escape
from pygments.lexers import CppLexer, JsonLexer, PythonLexer
from pygments.token import Comment, Keyword, Literal, Name, Number, String, Token

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pygments.lexer import Lexer
    from pygments.token import _TokenType

_LEXERS: dict[str, type[Lexer]] = {
    ".cpp": CppLexer,
    ".cu": CppLexer,
    ".h": CppLexer,
    ".json": JsonLexer,
    ".py": PythonLexer,
}
_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment.Preproc, "p"),
    (Comment, "c"),
    (Keyword.Type, "t"),
    (Keyword, "k"),
    (String, "s"),
    (Number, "n"),
    (Literal, "n"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "f"),
    (Name.Tag, "t"),
)
_SECONDS = 0.1
_RUN = re.compile(r"\s{200}")
"""Blanks in a row over which the lexers' expressions take too long."""


def highlighted(
    name: str, lines: Sequence[str], *, commented: bool = False, seconds: float = _SECONDS
) -> list[Markup]:
    """Lines of a source as markup.

    Args:
        name: Its file's name, whose ending says what it is.
        lines: Some lines of it.
        commented: Whether they begin within a block comment of C.
        seconds: Time that colours may take.
    """
    kind = _LEXERS.get(PurePosixPath(name).suffix)
    opened = commented and kind is CppLexer
    text = "\n".join(["/*", *lines] if opened else lines)
    if kind is None or _RUN.search(text):
        return [escape(line) for line in lines]
    # A comment of one line is none to the lexers without the line's end.
    return list(_lines(_within(kind(), f"{text}\n", seconds)))[opened:-1]


def _within(lexer: Lexer, text: str, seconds: float) -> Iterator[tuple[_TokenType, str]]:
    """Tokens of a text; once the time is over, one with all that is left."""
    until = time.monotonic() + seconds
    at = 0
    for begin, kind, value in lexer.get_tokens_unprocessed(text):
        yield kind, value
        at = begin + len(value)
        if time.monotonic() > until:
            break
    yield Token.Text, text[at:]


def _lines(tokens: Iterable[tuple[_TokenType, str]]) -> Iterator[Markup]:
    line: list[str] = []
    for kind, value in tokens:
        name = _class(kind)
        for place, part in enumerate(value.split("\n")):
            if place:
                yield Markup("".join(line))  # noqa: S704  # every part was escaped
                line = []
            if part:
                text = str(escape(part))
                line.append(f'<span class="{name}">{text}</span>' if name else text)
    yield Markup("".join(line))  # noqa: S704  # likewise


@cache
def _class(kind: _TokenType) -> str | None:
    return next((name for known, name in _CLASSES if kind in known), None)
