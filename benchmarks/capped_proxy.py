"""A TCP proxy that caps each connection's rate and adds latency, as a storage behind a network does.

Usage: capped_proxy.py HOST:PORT MB_PER_SECOND LATENCY_MS. It prints its port and ends with the process that started it. Bytes go
through pipes of the kernel (splice), so that the proxy costs the machine little.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 1 << 20
_LAG_SECONDS = 0.25
"""How much an answer may catch up with when the machine was busy with other work."""


@contextmanager
def capped(endpoint: str, *, megabytes_a_second: float, latency_ms: float) -> Iterator[str]:
    """Run a proxy in front of a server; yield its address."""
    target = urlsplit(endpoint).netloc
    command = [sys.executable, __file__, target, str(megabytes_a_second), str(latency_ms)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def main() -> None:
    """Serve until standard input is closed."""
    host, port = sys.argv[1].split(":")
    rate, latency = float(sys.argv[2]) * 1e6, float(sys.argv[3]) / 1e3
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(listener, (host, int(port)), rate, latency), daemon=True).start()
    sys.stdin.read()


def _accept(listener: socket.socket, target: tuple[str, int], rate: float, latency: float) -> None:
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(target)
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, server)
        threading.Thread(target=link.pass_requests, args=(latency,), daemon=True).start()
        threading.Thread(target=link.pass_answers, args=(rate,), daemon=True).start()


class _Link:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client = client
        self._server = server
        self._asked = False

    def pass_requests(self, latency: float) -> None:
        """Pass on what the client sends, each time after the latency of a round trip."""
        with suppress(OSError):
            time.sleep(latency)  # of the connection's own handshake
            while data := self._client.recv(_BLOCK):
                time.sleep(latency)
                self._asked = True
                self._server.sendall(data)
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_WR)

    def pass_answers(self, rate: float) -> None:
        """Pass on what the server sends, at the rate."""
        begin, end = os.pipe()
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _BLOCK)
        with suppress(OSError):
            allowed = 0.0  # when the bytes so far may have passed
            while count := os.splice(self._server.fileno(), end, _BLOCK):
                now = time.perf_counter()
                lag = 0.0 if self._asked else _LAG_SECONDS  # an idle connection saves nothing up
                self._asked = False
                allowed = max(allowed, now - lag) + count / rate
                while count:
                    count -= os.splice(begin, self._client.fileno(), count)
                if allowed > now:
                    time.sleep(allowed - now)
        os.close(begin)
        os.close(end)
        for each in (self._client, self._server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


if __name__ == "__main__":
    main()
