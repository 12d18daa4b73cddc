"""Model cards on a terminal: Markdown of anybody who may publish, bounded, and harmless to the terminal."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.attached_files.kinds import FileKind
from pt2hub.errors import INVISIBLE_CHARACTERS, Pt2hubError
from pt2hub.rendering.quantities import format_bytes, format_count
from pt2hub.wire.files import FileView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

    from pt2hub.client.client import Client
    from pt2hub.wire.responses import VersionView

MAX_CARD_BYTES = 64 << 10
"""As much as the page of a version shows."""
_MAX_FILE_BYTES = 1 << 20
"""A larger file is not fetched to show its beginning."""
_MAX_MARKS = 10_000
_MARKS = "[*_`|<>~!"
"""What Markdown's parser takes long for if there are many, as on the pages."""
_MAX_LINES = 2000
"""Longer cards are shown as they are written: a terminal's Markdown takes a millisecond for each line."""
_SHOWN_LINES = 10
_MAX_WIDTH = 100
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
"""What Hugging Face's cards begin with, YAML for programs."""


@dataclass(frozen=True, slots=True)
class Card:
    """The model card of a version.

    Attributes:
        file: The attached file.
        text: Its text, or the beginning of it; empty if it cannot be read.
        problem: Why it cannot be read; empty if it can.
        is_cut: Whether there is more than the text.
    """

    file: FileView
    text: str = ""
    problem: str = ""
    is_cut: bool = False


def find_card(version: VersionView) -> FileView | None:
    """Return the first card among a version's files, or None."""
    return next((item for item in version.files if item.kind == FileKind.CARD), None)


def read_card(client: Client, version: VersionView) -> Card | None:
    """Return the card of a version, or None. One that cannot be read must not hide the version."""
    file = find_card(version)
    if file is None:
        return None
    if file.size > _MAX_FILE_BYTES:
        return Card(file, problem=f"it has {format_bytes(file.size)}")
    try:
        path = client.files.get(version.model, version.number, file.name)
        with path.open("rb") as opened:
            data = opened.read(MAX_CARD_BYTES + 1)
    except (Pt2hubError, OSError) as exc:
        return Card(file, problem=exc.message if isinstance(exc, Pt2hubError) else str(exc))
    text = data[:MAX_CARD_BYTES].decode(errors="replace").replace("\r\n", "\n")
    return Card(file, text.translate(INVISIBLE_CHARACTERS), is_cut=len(data) > MAX_CARD_BYTES)


def print_card(out: Console, card: Card | None, version: VersionView, *, whole: bool) -> None:
    """Print a card, or its beginning and how to see the rest.

    Args:
        whole: Whether to print all of it.
    """
    if card is None:
        if whole:
            out.print("No model card. To add one: pt2hub file add MODEL@REF README.md")
        return
    name = f"{version.model}@{version.number}"
    get = f"pt2hub file get {name} {shlex.quote(card.file.name)}"
    out.print(f"model card {card.file.name}", style="bold")
    if card.problem:
        out.print(f"  Not shown: {card.problem}. To download it: {get}")
        return
    lines = _render(out, card.text)
    shown = lines if whole or len(lines) <= _SHOWN_LINES + 1 else lines[:_SHOWN_LINES]
    _print_lines(out, shown)
    if len(shown) < len(lines):
        out.print(f"  {format_count(len(lines) - len(shown), 'more line')}: pt2hub show {name} --card")
    elif card.is_cut:
        out.print(f"  The first {format_bytes(MAX_CARD_BYTES)} are shown. To download it: {get}")


def _render(out: Console, text: str) -> list[list[Segment]]:
    """Return the lines of a card, without blank ones at both ends."""
    from rich.text import Text

    from pt2hub.cli.artifacts.plain_markdown import PlainMarkdown

    body = _FRONT_MATTER.sub("", text, count=1)
    is_calm = sum(map(body.count, _MARKS)) <= _MAX_MARKS and body.count("\n") <= _MAX_LINES
    options = out.options.update(width=min(out.width, _MAX_WIDTH) - 2, no_wrap=False, overflow="fold")
    lines = out.render_lines(PlainMarkdown(body) if is_calm else Text(body), options, pad=False)
    while lines and not _text_of(lines[-1]):
        lines.pop()
    while lines and not _text_of(lines[0]):
        lines.pop(0)
    return lines


def _print_lines(out: Console, lines: list[list[Segment]]) -> None:
    from rich.text import Text

    for line in lines:
        made = Text("  ")
        for segment in line:
            made.append(segment.text, segment.style)
        made.rstrip()
        out.print(made)


def _text_of(line: list[Segment]) -> str:
    return "".join(segment.text for segment in line).strip()
