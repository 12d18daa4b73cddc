"""Names, notes, logs and errors of a server may hold anything; a terminal shows them and does nothing else."""

from __future__ import annotations

import io

import pytest
from rich.live import Live
from rich.text import Text

from pt2hub.cli.artifacts.show import print_version
from pt2hub.client.builds.progress import print_build
from pt2hub.client.consoles import PlainConsole
from pt2hub.domain.digests import Digest
from pt2hub.errors import NotFound, Pt2hubError
from pt2hub.wire.problems import from_dict
from pt2hub.wire.responses import BuildView, LogView, StepView, VersionView

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\b[/red][link=x]"
HARMLESS = "]0;title[2J31m[/red][link=x]"


def build() -> BuildView:
    step = StepView(EVIL, EVIL, "now", 1.0, EVIL)
    error = {"code": EVIL, "kind": "usage", "message": EVIL, "where": EVIL, "hint": EVIL}
    return BuildView(
        EVIL,
        "team/net",
        1,
        EVIL,
        EVIL,
        1,
        EVIL,
        None,
        EVIL,
        (step,),
        error,
        Digest(f"sha256:{EVIL}"),
        None,
        EVIL,
    )


def is_harmless(text: str) -> bool:
    return HARMLESS in text and not set(text) & set("\x1b\x07\x08\x9b\u202e")


def test_an_errors_text_is_harmless_and_its_parts_stay_as_they_came() -> None:
    error = NotFound(EVIL, where=EVIL, hint=EVIL)
    assert is_harmless(str(error))
    assert error.as_dict()["message"] == EVIL


def test_a_build_and_a_version_are_printed_harmlessly() -> None:
    out = PlainConsole(file=io.StringIO(), width=200)
    print_build(out, build())
    print_version(out, VersionView("team/net", 1, Digest("i"), EVIL, EVIL, {}, {}, (build(),)), {EVIL: EVIL})
    assert is_harmless(out.file.getvalue())  # type: ignore[attr-defined]  # the StringIO above


def test_text_that_moves_is_harmless_and_still_moves() -> None:
    out = PlainConsole(file=io.StringIO(), force_terminal=True, width=80, _environ={"TERM": "xterm"})
    with Live(Text(EVIL), console=out, auto_refresh=False) as live:
        live.refresh()
    shown = out.file.getvalue()  # type: ignore[attr-defined]  # the StringIO above
    assert "\x1b[2K" in shown  # rich's own movement
    assert "\x1b[2J" not in shown
    assert "\x1b]" not in shown


@pytest.mark.parametrize("at", [0.0, 1e300, float("nan")])
def test_a_line_of_a_log_is_one_harmless_line_whatever_its_time(at: float) -> None:
    line = str(LogView(1, at, "compile", "info", f"{EVIL}\nnext"))
    assert is_harmless(line)
    assert "\n" not in line


@pytest.mark.parametrize(
    "document",
    [{"details": [1], "hint": 7}, {"details": 3, "context": [1]}, {"where": {"a": 1}, "context": "x"}],
)
def test_an_error_document_of_another_form_is_still_an_error(document: dict[str, object]) -> None:
    error = from_dict({"code": "not_found", "message": "gone"} | document)
    assert isinstance(error, NotFound)
    assert isinstance(error, Pt2hubError)
    assert "gone" in str(error)
