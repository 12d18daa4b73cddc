"""A TCP proxy that caps each connection's rate and adds latency, as a storage behind a network does.

Usage: capped_proxy.py HOST:PORT MB_PER_SECOND LATENCY_MS. It prints its port and ends with the process that started it. Bytes go
through pipes of the kernel (splice), so that the proxy costs the machine little.
"""

from __future__ import annotations

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

_BLOCK = 1 << 18
_BURST_SECONDS = 0.02
"""How much of a pause a connection may catch up with."""


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
        for work, *arguments in ((_upwards, client, server, latency), (_downwards, server, client, rate)):
            threading.Thread(target=work, args=arguments, daemon=True).start()


def _upwards(client: socket.socket, server: socket.socket, latency: float) -> None:
    """Pass on what the client sends, each time after the latency of a round trip."""
    with suppress(OSError):
        time.sleep(latency)  # of the connection's own handshake
        while data := client.recv(_BLOCK):
            time.sleep(latency)
            server.sendall(data)
    with suppress(OSError):
        server.shutdown(socket.SHUT_WR)


def _downwards(server: socket.socket, client: socket.socket, rate: float) -> None:
    """Pass on what the server sends, at the rate."""
    begin, end = os.pipe()
    with suppress(OSError):
        allowed = time.perf_counter()  # when the bytes so far may have passed
        while count := os.splice(server.fileno(), end, _BLOCK):
            now = time.perf_counter()
            allowed = max(allowed, now - _BURST_SECONDS) + count / rate
            while count:
                count -= os.splice(begin, client.fileno(), count)
            if allowed > now:
                time.sleep(allowed - now)
    os.close(begin)
    os.close(end)
    for each in (client, server):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


if __name__ == "__main__":
    main()
