"""Server-sent events come out of bytes that are cut anywhere."""

from __future__ import annotations

import pytest

from pt2hub.client.builds import event_stream
from pt2hub.client.builds.event_stream import Event, parse
from pt2hub.errors import BadResponse

STREAM = (
    "retry: 1000\n\n"
    ": still here\n\n"
    'event: log\nid: 1.2\ndata: {"text": "é: a"}\n\n'
    "data: one\r\ndata:two\r\n\r\n"
    "event: empty\nid: 9\n\n"
    "event: end\ndata: {}\n\n"
    "event: log\nid: 1.3\ndata: cut"
).encode()
EVENTS = [Event("log", '{"text": "é: a"}', "1.2"), Event("message", "one\ntwo"), Event("end", "{}")]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_are_whole_however_their_bytes_arrive(size: int) -> None:
    assert list(parse(STREAM[at : at + size] for at in range(0, len(STREAM), size))) == EVENTS


def test_what_has_no_end_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_EVENT_BYTES", 1000)
    for endless in (b"x" * 100, b"data: y\n" * 20):
        with pytest.raises(BadResponse, match="longer than 1000 bytes"):
            list(parse([endless] * 20))
