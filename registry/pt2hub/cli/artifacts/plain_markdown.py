"""Markdown for terminals, without what an untrusted text could misuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.markdown import CodeBlock, Heading, Markdown
from rich.text import Text

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import MarkdownElement


class _PlainCode(CodeBlock):
    """A code block without colours: highlighters of many languages are slow on text that is written to be so."""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _PlainCode:
        """Return the element for any language."""
        del token
        return cls("text", markdown.code_theme)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, indented."""
        del console, options
        yield Text("\n".join(f"    {line}" for line in str(self.text).rstrip().splitlines()))


class _PlainHeading(Heading):
    """A heading at the left, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the heading and a blank line above."""
        del console, options
        self.text.justify = "left"
        yield Text("")
        yield self.text


class PlainMarkdown(Markdown):
    """Markdown whose links show their addresses: a terminal's own links hide them."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _PlainCode,
        "code_block": _PlainCode,
        "heading_open": _PlainHeading,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)
