"""Progress: a table where text moves, lines where it does not, nothing where nobody watches."""

from __future__ import annotations

import io
import itertools
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from rich.text import Text

from pt2hub.client import output
from pt2hub.client.builds import progress
from pt2hub.client.builds.events import BuildEvent, changes
from pt2hub.client.consoles import PlainConsole
from pt2hub.client.http import transfers
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import Conflict, NotFound
from pt2hub.wire.responses import AttemptView, BuildView, StepView, WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

V3 = "torch2.13-cpu-x86_64_v3"


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def pipe() -> Console:
    return PlainConsole(file=io.StringIO(), width=200, highlight=False)


def terminal() -> Console:
    return PlainConsole(
        file=Terminal(), force_terminal=True, width=120, highlight=False, _environ={"TERM": "xterm"}
    )


def written(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def a_build(state: str, *steps: StepView, **fields: Any) -> BuildView:
    return replace(BuildView("b1", "team/net", 1, V3, state, 1, "2026"), steps=steps, **fields)


def a_step(name: str, state: str = "done", detail: str | None = None) -> StepView:
    return StepView(name, state, "2026", 1.5 if state != "running" else None, detail)


def shown(out: Console, *looks: BuildView) -> list[str]:
    with progress.Lines(out) as lines:
        before = None
        for look in looks:
            for event in changes(before, look):
                lines(event)
            before = look
    return written(out).splitlines()


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_pipe_gets_one_line_per_finished_step() -> None:
    lines = shown(
        pipe(),
        a_build("running", a_step("fetch", "running")),
        a_build("running", a_step("fetch"), a_step("export", "running")),
        a_build("failed", a_step("fetch"), a_step("export", "failed", "no [bold]graph[/]")),
    )
    assert lines == [
        f"{V3}  running",
        f"{V3}  fetch           1.5 s",
        f"{V3}  export failed       1.5 s  no [bold]graph[/]",
        f"{V3}  failed",
    ]


def test_a_build_that_is_handed_back_is_told_after_its_last_step() -> None:
    running = a_build("running", a_step("compile", "running"))
    lines = shown(pipe(), running, a_build("queued", a_step("compile", "failed")))
    assert [line.removeprefix(V3).split()[0] for line in lines] == ["running", "compile", "queued"]
    assert lines[-1] == f"{V3}  queued    attempt 2"


def test_a_build_that_waits_again_says_how_its_last_attempt_ended() -> None:
    lost = AttemptView(1, "w1", "2026", "2026", "lost", "worker_lost", "It went silent.")
    lines = shown(
        pipe(),
        a_build("running"),
        a_build("queued", attempts=(lost,), position=3),
        a_build("running", attempt=2, attempts=(lost, AttemptView(2, "w2", "2026"))),
        a_build("cancelled", attempt=2, cancellation="cancelled by ci"),
    )
    assert [line.removeprefix(V3).strip() for line in lines] == [
        "running",
        "queued 3rd attempt 2, attempt 1 lost its worker (worker_lost)",
        "running   attempt 2, attempt 1 lost its worker (worker_lost)",
        "cancelled cancelled by ci",
    ]


def test_moving_up_in_the_queue_fills_no_log_but_moves_in_the_table() -> None:
    looks = [a_build("queued", attempt=0, position=place) for place in (3, 2, 1)]
    assert shown(pipe(), *looks) == [f"{V3}  queued 3rd"]
    out = terminal()
    with progress.LiveTable(out) as table:
        for before, after in itertools.pairwise(looks):
            for event in changes(before, after):
                table(event)
    assert "queued 1st" in written(out)


def test_nobody_is_told_to_start_a_worker_where_a_build_waits_for_its_next_attempt() -> None:
    waiting = a_build("queued", wait=WaitReason("next_attempt", until="2026"), not_before="2026")
    assert "start one" not in shown(pipe(), waiting)[0]


def test_a_target_without_a_worker_says_what_to_do() -> None:
    waiting = a_build("queued", attempt=0, wait=WaitReason("no_live_worker"))
    lines = shown(pipe(), waiting, replace(waiting, wait=None))
    assert "queued    no live worker offers this target; to start one" in lines[0]
    assert lines[1] == f"{V3}  queued"


def test_a_long_step_says_now_and_then_where_it_is() -> None:
    out = pipe()
    with progress.Lines(out, silence=0.02) as lines:
        lines(BuildEvent(a_build("running", a_step("compile", "running", "kernel 3 of 9"))))
        wait_for(lambda: written(out).count("so far") >= 2)
        lines(BuildEvent(a_build("succeeded", a_step("compile"))))
        ended = written(out).count("so far")
        time.sleep(0.1)
    assert "compile" in written(out)
    assert "so far  kernel 3 of 9" in written(out)
    assert written(out).count("so far") == ended


def test_a_terminal_gets_a_table_with_states_that_this_release_does_not_know() -> None:
    out = terminal()
    with progress.LiveTable(out) as table:
        table(BuildEvent(a_build("thawing", a_step("fetch"), a_step("compile", "running", "[x]"))))
    for words in ("thawing", "✓", "fetch", "1.5 s", "compile", "[x]"):
        assert words in written(out)


def test_only_a_terminal_or_a_notebook_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert output.moves(terminal())
    assert not output.moves(pipe())
    assert not output.moves(Console(file=io.StringIO(), force_terminal=True))
    assert not output.moves(Console(file=Terminal(), force_terminal=True, _environ={"TERM": "dumb"}))
    assert output.moves(Console(file=io.StringIO(), force_jupyter=True))
    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not output.is_watched()
    assert isinstance(progress.automatic(None), progress.NoProgress)
    assert isinstance(progress.automatic(wanted=True), progress.Lines)
    assert isinstance(progress.automatic(wanted=False), progress.NoProgress)
    monkeypatch.setattr("sys.stderr", Terminal())
    assert output.is_watched()


def test_a_notebooks_frame_is_replaced_and_ends_with_the_last_one() -> None:
    frames: list[str] = []
    text = ["<b>first</b>"]
    with output.LiveDisplay(lambda: Text(text[0]), lambda: frames.append) as redrawn:
        text[0] = "last"
    assert "last" in frames[-1]
    assert "&lt;b&gt;" in output.as_html(Text("<b>"))
    assert redrawn._thread
    assert not redrawn._thread.is_alive()


# -- transfers -------------------------------------------------------------------------------------------


def test_a_bar_shows_bytes_and_ends_full() -> None:
    out = terminal()
    with transfers.show_meter(out, "pulling [weights]", 50_000_000) as seen:
        seen(20_000_000)
        seen(50_000_000)
    assert "pulling [weights]" in written(out)
    assert "47.7/47.7 MiB" in written(out)


def test_a_bar_in_a_pipe_is_one_line() -> None:
    out = pipe()
    with transfers.show_meter(out, "pulling weights", 50_000_000) as seen:
        seen(50_000_000)
    assert written(out) == "pulling weights (47.68 MiB)\n"


@pytest.mark.parametrize(
    ("total", "wanted"), [(transfers.SMALL - 1, True), (1 << 30, None), (1 << 30, False)]
)
def test_small_or_unwatched_transfers_show_nothing(
    total: int, wanted: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with transfers.meter("x", total, wanted) as seen:
        seen(total)
    assert capsys.readouterr() == ("", "")


def test_a_part_of_a_file_read_again_is_counted_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"0123456789")
    seen: list[int] = []
    with transfers.Slice(path, 2, 7, seen.append) as part:
        assert (part.read(4), part.read(), part.read()) == (b"2345", b"678", b"")
        part.seek(0)
        assert (part.tell(), part.read(3)) == (0, b"234")
    assert seen == [4, 7, 7, 3]


def test_a_file_that_becomes_shorter_while_it_is_read_is_said_to_have_changed(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"0123456789")
    with transfers.Slice(path, 0, 10, lambda _: None) as part:
        path.write_bytes(b"0123")
        assert part.read() == b"0123"
        with pytest.raises(Conflict, match="changed during the upload") as caught:
            part.read()
    assert caught.value.where == str(path)


def test_a_file_that_changed_since_it_was_hashed_is_not_sent(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"0123456789")
    source = transfers.Source.of(path, progress=False)
    assert (source.size, source.digest) == (10, digest_bytes(b"0123456789"))
    source.check()
    path.write_bytes(b"0123456789+")
    for act in (source.check, lambda: source.open(0, 10, lambda _: None)):
        with pytest.raises(Conflict, match="changed"):
            act()


def test_what_is_no_file_is_not_hashed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "pipe", "Not a regular file"),
        (tmp_path, "Not a regular file"),
        (tmp_path / "x", "No such"),
    ):
        with pytest.raises(NotFound, match=words):
            transfers.Source.of(path, progress=False)
