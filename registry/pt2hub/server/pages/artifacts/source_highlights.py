"""Syntax highlighting of generated sources.

The text is untrusted and the lexers are third-party regular expressions: they get few lines at a time, no long runs of
blanks and little time; the rest is shown without colours.
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
_TIME_LIMIT_S = 0.1
_BLANKS = re.compile(r"\s{200}")
"""A run of blanks on which the lexers' expressions take too long."""


def highlight(
    name: str, lines: Sequence[str], *, commented: bool = False, seconds: float = _TIME_LIMIT_S
) -> list[Markup]:
    """Return the lines of a source as HTML."""
    kind = _LEXERS.get(PurePosixPath(name).suffix)
    opened = commented and kind is CppLexer
    text = "\n".join(["/*", *lines] if opened else lines)
    if kind is None or _BLANKS.search(text):
        return [escape(line) for line in lines]
    # Lexers recognize a one-line comment only with its line end.
    return list(_lines(_tokenize(kind(), f"{text}\n", seconds)))[opened:-1]


def _tokenize(lexer: Lexer, text: str, seconds: float) -> Iterator[tuple[_TokenType, str]]:
    """Yield the tokens of a text; after the time limit, the rest as one token."""
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
        for index, part in enumerate(value.split("\n")):
            if index:
                yield Markup("".join(line))  # noqa: S704  # every part was escaped
                line = []
            if part:
                text = str(escape(part))
                line.append(f'<span class="{name}">{text}</span>' if name else text)
    yield Markup("".join(line))  # noqa: S704  # every part was escaped


@cache
def _class(kind: _TokenType) -> str | None:
    return next((name for known, name in _CLASSES if kind in known), None)
