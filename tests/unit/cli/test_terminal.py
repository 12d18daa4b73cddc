"""What programs print for terminals is read as text with colours, and nothing of it is carried out."""

from __future__ import annotations

import re
import time

import pytest

from pt2hub.domain.terminal import PLAIN, StyledRun, TextStyle, plain, runs, search_pattern
from pt2hub.server.pages.builds.terminal_colors import as_html

ESC = "\x1b"


def test_colours_are_kept_and_end_where_they_end() -> None:
    line = f"a {ESC}[1;31mred{ESC}[22m thin{ESC}[0m {ESC}[38;5;10;48;2;0;0;200mboth{ESC}[39;49m plain{ESC}[m"
    assert runs(line) == [
        StyledRun("a ", PLAIN),
        StyledRun("red", TextStyle(ink=1, bold=True)),
        StyledRun(" thin", TextStyle(ink=1)),
        StyledRun(" ", PLAIN),
        StyledRun("both", TextStyle(ink=10, ground=4)),
        StyledRun(" plain", PLAIN),
    ]


def test_colours_with_colons_and_of_a_palette_become_the_nearest_of_sixteen() -> None:
    (run,) = runs(f"{ESC}[38:2::250:5:5m{ESC}[4:3mx")
    assert run.look == TextStyle(ink=9, underlined=True)
    assert [runs(f"{ESC}[38;5;{index}mx")[0].look.ink for index in (0, 15, 21, 231, 244)] == [0, 15, 4, 15, 8]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        (f"{ESC}]8;;https://elsewhere.example{ESC}\\a link{ESC}]8;;{ESC}\\", "a link"),
        (f"{ESC}]0;a title\x07after it", "after it"),
        (f"{ESC}[2J{ESC}[10;10H{ESC}[1A{ESC}[?25lstill here", "still here"),
        (f"{ESC}Pq#0;2;0;0;0{ESC}\\picture", "picture"),
        (f"{ESC}(B{ESC}=keypad", "keypad"),
        (f"{ESC}]0;without an end", "0;without an end"),
        ("a\x00b\x07c\x7f", "a\u2400b\u2407c[U+007F]"),
        ("safe\u202egnp.exe", "safe[U+202E]gnp.exe"),
        ("lone \ud800 surrogate", "lone [U+D800] surrogate"),
        (" 10 %\r 50 %\r100 %\r", "100 %"),
        ("one\r\ntwo", "one\ntwo"),
        ("\x9b31meight bits\x9b0m", "eight bits"),
    ],
)
def test_sequences_are_left_out_and_what_cannot_be_seen_is_named(line: str, read: str) -> None:
    assert plain(line) == read
    plain(line).encode()


@pytest.mark.parametrize(
    "part", [f"{ESC}]", f"{ESC}[", f"{ESC}P", "\x9d", "\x90", f"{ESC}[31;", f"{ESC}[9999mx", "\r"]
)
def test_a_hostile_line_takes_no_longer_than_its_length(part: str) -> None:
    began = time.monotonic()
    runs(part * 50_000)
    assert time.monotonic() - began < 10.0, "quadratic time would be minutes"
    runs(f"{ESC}[{'9' * 10_000}m")


def test_html_is_escaped_inside_of_colours_and_of_marks() -> None:
    line = f'<script>alert(1)</script>{ESC}[31m"><img src=x onerror=alert(2)>{ESC}[0m'
    html = as_html(line)
    assert html == (
        "&lt;script&gt;alert(1)&lt;/script&gt;"
        '<span class="ink-1">&#34;&gt;&lt;img src=x onerror=alert(2)&gt;</span>'
    )
    marked = as_html(line, search_pattern("ALERT"))
    assert marked.count("<mark>alert</mark>") == 1
    assert marked.count('<mark class="ink-1">alert</mark>') == 1
    assert re.sub(r"</?(mark|span)[^>]*>", "", marked) == re.sub(r"</?(mark|span)[^>]*>", "", html)


def test_a_text_is_found_across_changes_of_colour_and_marked_whole() -> None:
    line = f"an er{ESC}[1mr{ESC}[32mor, another ERROR"
    html = as_html(line, search_pattern("error"))
    assert re.findall(r"<mark[^>]*>([^<]*)</mark>", html) == ["er", "r", "or", "ERROR"]
    assert re.sub(r"<[^>]*>", "", html) == "an error, another ERROR"


def test_swapped_and_faint_text_can_be_read() -> None:
    assert as_html(f"{ESC}[7mx") == '<span class="t-swapped">x</span>'
    assert as_html(f"{ESC}[31;7mx") == '<span class="on-1">x</span>'
    assert as_html(f"{ESC}[2;103mx") == '<span class="on-3 t-faint">x</span>'
