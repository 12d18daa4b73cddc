"""Parts of logs: around a line, before and behind one, and where a text stands, wherever the log lies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.builds import LogLine
from pt2hub.errors import CompileFailed, InvalidInput, NotFound
from pt2hub.server.services.builds import log_windows
from pt2hub.server.views.logs import LogMatches, LogPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.builds import Claim
    from pt2hub.server.views.logs import LogWindow
    from support.registry import Registry


def lines(count: int, *, noise: Sequence[int] = ()) -> list[LogLine]:
    """Lines with these of the compiler's among them; number 30 tells of an error."""
    return [
        LogLine(
            seq,
            1.0,
            "compile",
            "compiler" if seq in noise else "error" if seq == 30 else "info",
            f"line {seq}",
        )
        for seq in range(1, count + 1)
    ]


def logged(registry: Registry, found: list[LogLine], *, away: bool) -> Claim:
    """A build with a log: of an attempt that runs, or put away."""
    claim = registry.claim(registry.submit().builds[0].id)
    for begin in range(0, len(found), 20_000):
        registry.services.builds.report(claim, [], found[begin : begin + 20_000])
    if away:
        registry.services.builds.fail(claim, CompileFailed("no"))
        assert registry.services.logs.archive(claim.build, 1)
    return claim


def shown(window: LogWindow) -> tuple[list[int], bool, bool]:
    return [line.seq for line in window.lines], window.earlier, window.later


@pytest.mark.parametrize("away", [False, True])
def test_windows_name_their_lines_and_whether_there_are_more(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, *, away: bool
) -> None:
    monkeypatch.setattr(log_windows, "MAX_WINDOW_LINES", 10)
    noise = [*range(2, 9), *range(61, 96)]
    build = logged(registry, lines(100, noise=noise), away=away).build

    def window(*, summary: bool = False, **place: int) -> LogWindow:
        return registry.services.log_windows.window(build, position=LogPosition(**place), summary=summary)

    assert (window().attempt, window().last, window().error) == (1, 100, 30)
    assert shown(window()) == ([*range(91, 101)], True, False)
    assert shown(window(after=0)) == ([*range(1, 11)], False, True)
    assert shown(window(after=95)) == ([*range(96, 101)], True, False)
    assert shown(window(before=6)) == ([*range(1, 6)], False, True)
    assert shown(window(before=40)) == ([*range(30, 40)], True, True)
    assert shown(window(at=30)) == ([*range(25, 35)], True, True)
    assert shown(window(at=2)) == ([*range(1, 7)], False, True)
    assert shown(window(at=10**6)) == ([*range(96, 101)], True, False)
    assert shown(window(summary=True)) == ([*range(56, 61), *range(96, 101)], True, False)
    assert shown(window(summary=True, before=10)) == ([1, 9], False, True)
    assert registry.services.log_windows.last(build, 1) == 100
    assert registry.services.log_windows.first_error(build, 1) == 30


@pytest.mark.parametrize("away", [False, True])
def test_very_long_lines_make_a_window_shorter_but_never_empty(registry: Registry, *, away: bool) -> None:
    long = [LogLine(seq, 1.0, "compile", "output", "x" * 100_000) for seq in range(1, 9)]
    build = logged(registry, long, away=away).build
    windows = registry.services.log_windows
    assert shown(windows.window(build)) == ([7, 8], True, False)
    assert shown(windows.window(build, position=LogPosition(after=0))) == ([1, 2], False, True)
    assert shown(windows.window(build, position=LogPosition(at=4))) == ([3, 4], True, True)


@pytest.mark.parametrize("away", [False, True])
def test_a_text_is_found_as_it_is_read_in_any_case_and_across_colours(
    registry: Registry, *, away: bool
) -> None:
    texts = [
        "An ERROR",
        "\x1b[31mer\x1b[1mror\x1b[0m",
        'say "error"',
        "100 % of err_r",
        "größer",
        "nothing",
        "error",
    ]
    found = [LogLine(seq, 1.0, "compile", "output", text) for seq, text in enumerate(texts, 1)]
    found[-1] = LogLine(7, 1.0, "compile", "compiler", "error")
    build = logged(registry, found, away=away).build

    def matches(text: str, *, summary: bool = False) -> LogMatches:
        return registry.services.log_windows.matches(build, text, summary=summary)

    assert matches("error") == LogMatches((1, 2, 3, 7))
    assert matches("error", summary=True) == LogMatches((1, 2, 3), hidden=1)
    assert matches('"error"') == LogMatches((3,))
    assert matches("0 % of err_") == LogMatches((4,))
    assert matches("err.r") == LogMatches(())
    assert matches("GRÖSSER") == LogMatches(())
    assert matches("GRÖßER") == LogMatches((5,))
    assert matches("\x00") == matches("31m") == LogMatches(())
    with pytest.raises(InvalidInput):
        matches("x" * 1000)


def test_an_unknown_attempt_or_build_has_no_window(registry: Registry) -> None:
    build = registry.submit().builds[0].id
    assert registry.services.log_windows.window(build).attempt == 0
    with pytest.raises(NotFound):
        registry.services.log_windows.window(build, attempt=1)
    with pytest.raises(NotFound):
        registry.services.log_windows.window("missing")


@pytest.mark.parametrize("away", [False, True])
def test_a_huge_log_is_leafed_through_and_searched_quickly(registry: Registry, *, away: bool) -> None:
    count = 100_000
    build = logged(registry, lines(count, noise=range(1000, count - 100)), away=away).build
    windows = registry.services.log_windows
    windows.window(build)
    timed = {}
    for name, look in {
        "end": lambda: windows.window(build, summary=True),
        "middle": lambda: windows.window(build, position=LogPosition(at=count // 2)),
        "backwards over noise": lambda: windows.window(
            build, position=LogPosition(before=count - 200), summary=True
        ),
        "search": lambda: windows.matches(build, "LINE 99999"),
    }.items():
        began = time.monotonic()
        look()
        timed[name] = round(time.monotonic() - began, 3)
    print(timed)
    assert max(timed.values()) < 2.0, timed
    assert windows.matches(build, "line 99999").positions == (99_999,)
    assert len(windows.matches(build, "line").positions) == log_windows.MAX_MATCHES
