"""Model cards as HTML.

A card is Markdown of anybody who may publish: its HTML is cleaned by nh3, and it loads nothing from elsewhere, pictures
neither. What takes markdown-it long, many times as many marks or lines as in any card, is shown as plain text.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import unquote

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from pt2hub.errors import INVISIBLE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.renderer import RendererProtocol
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

MAX_CARD_BYTES = 64 << 10
"""A long card has 20 KiB."""
MAX_BRACKETS = 2000
MAX_MARKS = 10_000
MAX_LINES = 5000
_MAX_SUMMARIZED = 4096
"""Characters of a card in which its summary is searched for."""
_MARKS = "*_`|<>~!"
_KEPT = 16
_TAGS = frozenset(
    [
        "a",
        "b",
        "blockquote",
        "br",
        "code",
        "dd",
        "del",
        "details",
        "div",
        "dl",
        "dt",
        "em",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "i",
        "kbd",
        "li",
        "ol",
        "p",
        "pre",
        "s",
        "small",
        "span",
        "strong",
        "sub",
        "summary",
        "sup",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ]
)
_ATTRIBUTES = {"a": {"href"}, "ol": {"start"}}
_HEADING_OFFSET = 2
"""The page has headings of the first two levels itself."""
_LEVELS = 6
_HEADING = re.compile(r"<(/?)h([1-6])\b", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
"""What Hugging Face's cards begin with, YAML for programs."""
_ABSOLUTE = ("http://", "https://", "mailto:")


@lru_cache(_KEPT)
def render_card(text: str, links: tuple[tuple[str, str], ...] = ()) -> Markup:
    """Return a card as HTML that is safe within a page.

    Args:
        links: Addresses of files by name, for relative links to them; others become plain text.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # both end lines, and these are counted
    marks = sum(map(text.count, _MARKS))
    if text.count("[") > MAX_BRACKETS or marks > MAX_MARKS or text.count("\n") > MAX_LINES:
        return Markup("<pre>{}</pre>").format(text.translate(INVISIBLE_CHARACTERS))
    rendered = _HEADING.sub(_lower, _parser().render(_FRONT_MATTER.sub("", text, count=1)))
    cleaned = nh3.clean(
        rendered,
        tags=set(_TAGS),
        attributes=_ATTRIBUTES,
        attribute_filter=partial(_keep, dict(links)),
        link_rel="noopener noreferrer nofollow",
        url_schemes={"http", "https", "mailto"},
    )
    # Last, since Markdown and HTML both have escapes for characters that reverse the text.
    return Markup(cleaned.translate(INVISIBLE_CHARACTERS))  # noqa: S704  # cleaned above


def summarize_card(text: str) -> str:
    """Return what a card says first: its first paragraph that has words, else its first heading; empty without both."""
    text = _FRONT_MATTER.sub("", text.replace("\r\n", "\n"), count=1)[:_MAX_SUMMARIZED]
    tokens = _parser().parse(text)
    found = {"paragraph_open": "", "heading_open": ""}
    for opening, inline in pairwise(tokens):
        if opening.level == 0 and opening.type in found and not found[opening.type]:
            found[opening.type] = _words(inline)
    return found["paragraph_open"] or found["heading_open"]


def _words(inline: Token) -> str:
    """Return the text of a paragraph or heading, without markup and pictures."""
    words = (
        " " if child.type in ("softbreak", "hardbreak") else child.content
        for child in inline.children or ()
        if child.type in ("text", "code_inline", "softbreak", "hardbreak")
    )
    return " ".join("".join(words).translate(INVISIBLE_CHARACTERS).split())


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _picture)
    return parser


def _picture(
    _renderer: RendererProtocol, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: EnvType
) -> str:
    """Return the text that stands for a picture, which would be loaded from elsewhere."""
    return str(escape(tokens[index].content))


def _lower(match: re.Match[str]) -> str:
    return f"<{match[1]}h{min(_LEVELS, int(match[2]) + _HEADING_OFFSET)}"


def _keep(links: dict[str, str], tag: str, attribute: str, value: str) -> str | None:
    """Return the value of an attribute that may stay, or None."""
    if (tag, attribute) != ("a", "href") or value.lower().startswith(_ABSOLUTE):
        return value
    name = value.removeprefix("./")
    return links.get(name) or links.get(unquote(name))  # Markdown encodes all but ASCII
