"""A load generator that costs little: prepared requests over kept connections, to this machine only."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD_END = b"\r\n\r\n"
_OK = b" 200 "


@dataclass(slots=True)
class Tally:
    """What came back.

    Attributes:
        milliseconds: Of each right answer: from when it was due (open loop) or sent (closed loop).
        wrong: Answers other than 200.
        seconds: Wall time of the whole.
    """

    milliseconds: list[float] = field(default_factory=list)
    wrong: int = 0
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """Right answers a second."""
        return len(self.milliseconds) / self.seconds

    def quantile(self, share: float) -> float:
        """Return a quantile of the latencies, in milliseconds."""
        ordered = sorted(self.milliseconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


class Connection:
    """One kept connection that asks one thing again and again."""

    def __init__(self, address: str) -> None:
        """Open it.

        Args:
            address: The whole URL of what is asked for.
        """
        parts = urlsplit(address)
        assert parts.hostname == "127.0.0.1", "load goes to this machine only"
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self._request = f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
        self._socket = socket.create_connection((parts.hostname, parts.port or 80), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> bool:
        """Ask once and read the whole answer; whether it was 200."""
        self._socket.sendall(self._request)
        data = self._read(b"")
        while _HEAD_END not in data:
            data = self._read(data)
        head, _, body = data.partition(_HEAD_END)
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body = self._read(body)
        return _OK in head.partition(b"\r\n")[0]

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _read(self, data: bytes) -> bytes:
        piece = self._socket.recv(1 << 16)
        if not piece:
            raise ConnectionError("the server closed the connection")
        return data + piece


def closed_loop(address: str, *, connections: int, seconds: float) -> Tally:
    """Ask as often as answers come, over several connections."""
    ends = time.monotonic() + seconds

    def each(connection: Connection, tally: Tally) -> None:
        while (sent := time.monotonic()) < ends:
            _count(tally, connection, sent)

    return _together(address, connections, each)


def open_loop(address: str, *, rate: float, connections: int, seconds: float) -> Tally:
    """Ask at a fixed rate; an answer that is late makes the next ones late too, and that is counted."""
    begins, step = time.monotonic() + 0.1, connections / rate
    lanes = iter(range(connections))
    lock = threading.Lock()

    def each(connection: Connection, tally: Tally) -> None:
        with lock:
            lane = next(lanes)
        due = begins + lane / rate
        while due < begins + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            _count(tally, connection, due)
            due += step

    return _together(address, connections, each)


def _count(tally: Tally, connection: Connection, since: float) -> None:
    if connection.ask():
        tally.milliseconds.append((time.monotonic() - since) * 1000)
    else:
        tally.wrong += 1


def _together(address: str, connections: int, each: Callable[[Connection, Tally], None]) -> Tally:
    tallies = [Tally() for _ in range(connections)]
    opened = [Connection(address) for _ in range(connections)]
    threads = [threading.Thread(target=each, args=pair) for pair in zip(opened, tallies, strict=True)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = Tally(seconds=time.monotonic() - began)
    for connection, tally in zip(opened, tallies, strict=True):
        connection.close()
        whole.milliseconds += tally.milliseconds
        whole.wrong += tally.wrong
    return whole
