"""What people read: times, sizes, tables in a pipe and on a terminal, places in a spec's file."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from pt2hub.cli.output import one_line
from pt2hub.cli.publishing.source_positions import in_file
from pt2hub.cli.tables import print_fields, print_table
from pt2hub.domain.tokens import SERVER
from pt2hub.errors import Conflict, Detail, InvalidInput, NotFound, Unauthorized
from pt2hub.rendering.times import NOTHING, format_local_time, format_span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_times_are_shown_by_the_local_clock_to_the_minute() -> None:
    assert format_local_time("2026-11-21T22:30:59.5Z") == "2026-11-22 07:30"
    assert format_local_time("2026-11-21T22:30:59") == "2026-11-22 07:30", "without a zone it is UTC"
    assert format_local_time(None) == NOTHING
    assert format_local_time("next week") == "next week", "a form of a newer server is shown as it is"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("2026-11-21T10:00:04.25Z", "4.2 s"),
        ("2026-11-21T10:01:04Z", "1 min 4 s"),
        ("2026-11-21T12:05:00Z", "2 h 5 min"),
        (None, NOTHING),
    ],
)
def test_durations_are_short(end: str | None, words: str) -> None:
    assert format_span("2026-11-21T10:00:00Z", end) == words


def test_what_others_wrote_cannot_move_the_cursor() -> None:
    assert one_line("first\nsecond \x1b[2J\ttab\x07") == "first second [2J tab"


def printed(terminal: int | None) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=terminal is not None,
        width=terminal or 200,
        soft_wrap=True,
        highlight=False,
    )
    print_table(console, ("ID", "DIGESTS", "STATE"), [("1", (DIGEST, DIGEST), "ready"), ("22", "", "[red]")])
    return out.getvalue()


def test_a_piped_table_has_plain_aligned_columns_and_whole_values() -> None:
    lines = printed(None).splitlines()
    assert lines[1].split() == ["1", f"{DIGEST},", DIGEST, "ready"]
    assert lines[2].split() == ["22", "-", "[red]"]
    assert {line.index(word) for line, word in zip(lines, ("STATE", "ready", "[red]"), strict=True)} == {150}


def test_a_table_on_a_terminal_has_colour_and_a_line_for_each_part() -> None:
    text = printed(120)
    assert text.count(DIGEST) == 2
    assert "\x1b[32mready" in text
    assert "[red]" in text, "what others wrote is no markup"
    assert len(text.splitlines()) == 4


def test_a_terminal_too_narrow_for_a_digest_still_shows_it_in_one_piece() -> None:
    assert printed(60).count(DIGEST) == 2


def test_where_it_gets_narrow_texts_wrap_before_names_do() -> None:
    out = io.StringIO()
    row = ("688d2e6fd6eb1e11", "no live worker offers this target", "torch2.13-cpu-x86_64_v4")
    print_table(Console(file=out, force_terminal=True, width=60), ("BUILD", "NOTE", "TARGET"), [row])
    assert row[0] in out.getvalue()
    assert row[2] in out.getvalue()
    assert "no live worker" in out.getvalue()
    assert row[1] not in out.getvalue()


def test_fields_leave_out_what_is_empty() -> None:
    out = io.StringIO()
    print_fields(Console(file=out), [("a", "1"), ("longer", "2"), ("none", "")])
    assert out.getvalue() == "  a       1\n  longer  2\n"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "model: a/b\ninputs:\n  - {name: x, shape: [batch, 3]}\n  - name: y\ndims:\n  batch: {min: 0}\n"
    )
    return path


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("dims.batch.min", "line 6, column 11"),
        ("inputs[0].shape[1]", "line 3, column 30"),
        ("inputs[1].shape", "line 4, column 5"),  # missing: where it belongs
    ],
)
def test_a_field_is_found_in_its_file(spec: Path, field: str, place: str) -> None:
    wrong = InvalidInput("Too small", where=field, details=(Detail(field, "too small"),))
    assert in_file(wrong, spec).where == f"{spec}, {place}: {field}"


def test_several_fields_are_each_given_their_line(spec: Path) -> None:
    details = (Detail("dims.batch.min", "too small"), Detail("source", "required"))
    error = in_file(InvalidInput("2 fields are wrong", where="spec", details=details), spec)
    assert error.where == str(spec)
    assert [item.message for item in error.details] == ["line 6, column 11: too small", "required"]
    assert [item.path for item in error.details] == ["dims.batch.min", "source"]


def test_a_document_that_cannot_be_read_is_named_by_its_file(spec: Path) -> None:
    error = in_file(InvalidInput("Invalid YAML", where="document, line 2, column 1"), spec)
    assert (type(error), error.where) == (InvalidInput, f"{spec}, line 2, column 1")


def test_errors_about_something_else_stay_as_they_are(spec: Path) -> None:
    for error in (Unauthorized(where="http://127.0.0.1:8400"), NotFound("gone", where=str(spec))):
        assert in_file(error, spec) is error


def test_an_error_says_what_it_is_about_once() -> None:
    assert str(Conflict("a.tar already exists", where="a.tar")) == "a.tar already exists"
    assert str(Conflict("The file already exists", where="a.tar")) == "a.tar: The file already exists"
    assert str(SERVER.principal) == "server"
