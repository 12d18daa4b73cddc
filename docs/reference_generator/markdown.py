"""Markdown, as GitHub and most viewers read it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SPAN = re.compile(r"(`[^`]*`)")
NOTICE = "<!-- Written from the code by `make docs`; changes here are lost. -->"


def document(title: str, *parts: str) -> str:
    """Return a page."""
    return "\n\n".join((f"# {title}", NOTICE, *(part.strip("\n") for part in parts if part))) + "\n"


def heading(level: int, text: str) -> str:
    """Return a heading."""
    return f"{'#' * level} {text}"


def anchor(text: str) -> str:
    """Return where a heading can be reached."""
    return "#" + re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def link(label: str, address: str) -> str:
    """Return a link."""
    return f"[{label}]({address})"


def code(text: str) -> str:
    """Code in a line."""
    return f"`{text}`"


def fence(text: str, kind: str = "") -> str:
    """Code in lines of its own."""
    return f"```{kind}\n{text.strip()}\n```"


def bullets(items: Iterable[str]) -> str:
    """Return a list."""
    return "\n".join(f"* {item}" for item in items)


def prose(text: str) -> str:
    """Text of the code's own documentation: what looks like a tag outside of code is none."""
    return "".join(part if part.startswith("`") else part.replace("<", "\\<") for part in _SPAN.split(text))


def value(item: object) -> str:
    """Return a JSON value in a line, as one writes it in YAML."""
    if item is None or isinstance(item, bool):
        return json.dumps(item)
    return (
        yaml.safe_dump(item, default_flow_style=True, sort_keys=False, width=1000)
        .removesuffix("...\n")
        .strip()
    )


def choice(words: Sequence[Any]) -> str:
    """Format alternatives: `a`, `b` or `c`."""
    *first, last = (code(str(word)) for word in words)
    return f"{', '.join(first)} or {last}" if first else last


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without its empty columns; empty without rows."""
    lines = [list(row) for row in rows]
    kept = [place for place in range(len(head)) if any(line[place] for line in lines)]
    if not lines:
        return ""
    cells = [[_cell(line[place]) for place in kept] for line in ([*head], *lines)]
    ruled = [cells[0], ["---"] * len(kept), *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)


def _cell(text: str) -> str:
    return prose(" ".join(text.split())).replace("|", "\\|")
