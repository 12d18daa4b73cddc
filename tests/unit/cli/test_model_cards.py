"""Model cards on a terminal: bounded, and harmless."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pt2hub.cli.artifacts.model_card import MAX_CARD_BYTES, print_card, read_card
from pt2hub.client.consoles import PlainConsole
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import NotFound
from pt2hub.wire.files import FileView

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.client import Client
    from pt2hub.wire.responses import VersionView

DIGEST = digest_bytes(b"card")


def render(
    text: str | bytes,
    tmp_path: Path,
    *,
    whole: bool = True,
    size: int | None = None,
    terminal: bool = False,
    name: str = "README.md",
) -> str:
    """What `pt2hub show` prints of a card."""
    data = text.encode() if isinstance(text, str) else text
    path = tmp_path / "card.md"
    path.write_bytes(data)
    file = FileView(name, "card", "text/markdown", DIGEST, len(data) if size is None else size, pinned=True)
    version = cast("VersionView", SimpleNamespace(model="a/b", number=3, files=(file,)))
    client: Any = SimpleNamespace(files=SimpleNamespace(get=lambda *_: path))
    out = io.StringIO()
    console = PlainConsole(file=out, width=80, force_terminal=terminal, highlight=False, soft_wrap=True)
    print_card(console, read_card(cast("Client", client), version), version, whole=whole)
    return out.getvalue()


def test_a_card_is_rendered_as_text(tmp_path: Path) -> None:
    shown = render("---\nlicense: mit\n---\n# Title\n\nSome **bold** [bank](https://x.example)\n", tmp_path)
    assert "license: mit" not in shown
    assert "  Title\n" in shown
    assert "Some bold bank (https://x.example)" in shown, "a link shows where it leads"


def test_only_the_beginning_is_shown_unless_all_of_it_is_wanted(tmp_path: Path) -> None:
    card = "\n".join(f"- item {number}" for number in range(30))
    shown = render(card, tmp_path, whole=False)
    assert "  20 more lines: pt2hub show a/b@3 --card\n" in shown
    assert ("item 9" in shown, "item 10" in shown) == (True, False)
    assert "item 29" in render(card, tmp_path)
    almost = "\n".join(f"- item {number}" for number in range(11))
    assert "item 10" in render(almost, tmp_path, whole=False), "one line is not worth another command"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_card_cannot_repaint_a_terminal(tmp_path: Path, *, terminal: bool) -> None:
    shown = render(
        "\x1b[2Jerased \x1b]0;title\x07 \u202eturned\u202c `\x1b[31m` &#27;[31m &#x202e;again&rlm; <b>html</b> [/red]\n\n"
        "```python\n\x1b[2J\n```\n",
        tmp_path,
        terminal=terminal,
    )
    for hostile in ("\x1b[2J", "\x1b]0", "\x1b]8", "\x07", "\u202e", "\u200f", "\x1b[31m"):
        assert hostile not in shown
    assert "[/red]" in shown


def test_a_card_that_is_a_bomb_takes_no_time(tmp_path: Path) -> None:
    begin = time.monotonic()
    for bomb in (
        "[" * 60_000,
        "> " * 30_000,
        "*a_ " * 15_000,
        "|a" * 30_000,
        "- " * 30_000,
        "`" * 60_000,
        "# a\n" * 16_000,
    ):
        assert render(bomb, tmp_path)
    assert time.monotonic() - begin < 30


def test_a_long_card_is_cut_and_a_huge_one_is_not_fetched(tmp_path: Path) -> None:
    shown = render("word " * MAX_CARD_BYTES, tmp_path)
    assert "The first 64 KiB are shown. To download it: pt2hub file get a/b@3 README.md" in shown
    assert "Not shown: it has" in render("x", tmp_path, size=2 << 30)
    assert "\N{REPLACEMENT CHARACTER}" in render(b"\xff\xfe no text", tmp_path)


def test_the_command_for_a_card_runs_nothing_else_in_a_shell(tmp_path: Path) -> None:
    shown = render("x", tmp_path, size=2 << 30, name="$(reboot);card.md")
    assert "pt2hub file get a/b@3 '$(reboot);card.md'" in shown


def test_a_card_that_cannot_be_read_does_not_hide_the_version() -> None:
    def fail(*_: object) -> Path:
        raise NotFound("Blob not found")

    file = FileView("README.md", "card", "text/markdown", DIGEST, 3, pinned=True)
    version = cast("VersionView", SimpleNamespace(model="a/b", number=3, files=(file,)))
    client: Any = SimpleNamespace(files=SimpleNamespace(get=fail))
    card = read_card(cast("Client", client), version)
    assert card is not None
    assert card.problem == "Blob not found"
