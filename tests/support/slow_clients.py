"""Clients that send or read a byte at a time, many at once, and the time that others wait for an answer meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.api_process import ApiProcess

RECEIVE_BUFFER_BYTES = 4096


@dataclass(frozen=True)
class Request:
    """What a slow client sends.

    Attributes:
        at_once: Bytes sent when it connects.
        byte: The byte that it sends again and again afterwards; empty for a client that only reads.
        reads: Bytes that it reads each second.
    """

    at_once: bytes
    byte: bytes = b"x"
    reads: int = 0


@contextmanager
def slow_clients(api: ApiProcess, requests: Sequence[Request]) -> Iterator[list[socket.socket]]:
    """Run slow clients, one per request, within the block; yields their connections."""
    connections = [_connect(api, request) for request in requests]
    ended = threading.Event()
    drip = threading.Thread(target=_drip, args=(list(zip(connections, requests, strict=True)), ended))
    drip.start()
    try:
        yield connections
    finally:
        ended.set()
        drip.join()
        for connection in connections:
            connection.close()


def healthz_seconds(api: ApiProcess, *, lasting: float) -> list[float]:
    """Return how long each of several probes of `/healthz` took, ten per second, each over a new connection."""
    taken = []
    ends = time.monotonic() + lasting
    while time.monotonic() < ends:
        began = time.monotonic()
        response, _ = api.ask("GET", "/healthz")
        taken.append(time.monotonic() - began)
        assert response.status == 200
        time.sleep(0.1)
    return taken


def _connect(api: ApiProcess, request: Request) -> socket.socket:
    connection = socket.socket()
    if request.reads:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", api.port))
    connection.sendall(request.at_once)
    return connection


def _drip(clients: Sequence[tuple[socket.socket, Request]], ended: threading.Event) -> None:
    while not ended.wait(1.0):
        for connection, request in clients:
            with contextlib.suppress(OSError):  # the server hung up
                if request.byte:
                    connection.send(request.byte, socket.MSG_DONTWAIT)
                if request.reads:
                    connection.recv(request.reads, socket.MSG_DONTWAIT)
