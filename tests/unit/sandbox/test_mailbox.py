"""What a child sends, between the thread that receives it and the one that reads it."""

from __future__ import annotations

import threading
import time

import pytest

from pt2hub_workers.children import mailbox
from pt2hub_workers.children.mailbox import Mailbox, read_message
from support.working import until


def test_lines_come_in_order_and_the_end_after_them() -> None:
    box = Mailbox()
    assert [box.put(line) for line in (b"one", b"two")] == [True, True]
    box.end()

    assert [box.take(0.1) for _ in range(3)] == [b"one", b"two", b""]
    assert box.put(b"late") is False


def test_who_sends_more_than_is_read_waits_and_goes_on_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "MAX_WAITING", 1000)
    box, sent = Mailbox(), list[bool]()

    def send() -> None:
        while box.put(b"x" * 200):
            sent.append(True)

    sender = threading.Thread(target=send)
    sender.start()
    until(lambda: len(sent) == 3, 10)
    time.sleep(0.1)  # would it send more?
    assert len(sent) == 3
    assert box.take(0) == b"x" * 200
    until(lambda: len(sent) == 4, 10)
    time.sleep(0.1)
    assert len(sent) == 4
    box.end()
    sender.join(5)
    assert not sender.is_alive()


def test_a_line_longer_than_all_that_may_wait_is_taken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "MAX_WAITING", 10)
    box = Mailbox()
    assert box.put(b"x" * 100)
    assert box.take(0) == b"x" * 100


def test_who_waits_is_woken_at_once_though_nothing_came() -> None:
    box = Mailbox()
    threading.Timer(0.1, box.wake).start()
    began = time.monotonic()
    assert box.take(10) is None
    assert time.monotonic() - began < 5
    assert box.take(0.01) is None


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"x", b"[]", b"null", b'"event"', b"{}", b'{"event": 7}', b'{"event": "log"', b"\xff\xfe"),
        b"[" * 100_000,
        b'{"event": "log", "text": ' + b"[" * 70 + b"]" * 70 + b"}",
        b'{"event": "step", "seconds": 1' + b"0" * 30 + b"}",
        b'{"event": "log", "text": [' + b"[]," * 600_000 + b"0]}",
    ],
)
def test_a_line_that_is_no_message_is_refused_by_one_kind_of_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_message(line)


def test_a_message_holds_nothing_that_a_database_refuses() -> None:
    line = (
        rb'{"event": "log", "text": "a\u0000b\ud800", "x\u0000": [NaN, -Infinity, 1e999, 1.5, 7, true, null]}'
    )

    assert read_message(line) == {
        "event": "log",
        "text": "ab?",
        "x": ["NaN", "-Infinity", "1e999", 1.5, 7, True, None],
    }
