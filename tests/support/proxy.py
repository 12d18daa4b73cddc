"""A TCP proxy in front of a real server, which does to connections what networks and overloaded servers do.

It knows of HTTP only where requests begin: the client's first bytes after the server's last ones.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BLOCK = 1 << 16
_REQUEST = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")
_PATIENCE = 10.0
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code><Message>Another one.</Message></Error>"


@dataclass
class Fault:
    """What befalls requests.

    Attributes:
        do: `delay` (by `seconds`), `slow` (to `rate` bytes per second), `reset` (RST, after `seconds` in which
            what passed can be read: RST takes away the rest), `truncate` (an orderly end), `answer` (with `status`
            and `body`, in the server's place) or `flip` (one bit).
        on: Expression that is searched in request line and headers.
        times: How many requests it befalls; None for all.
        after: So many bytes pass before it begins.
        down: Whether they are counted in the answer, and it is the answer that suffers.
        hit: Requests it befell so far.
    """

    do: str
    on: str = ""
    times: int | None = None
    after: int = 0
    down: bool = False
    seconds: float = 0.0
    rate: int = 0
    status: int = 503
    body: bytes = SLOW_DOWN
    hit: int = 0


class Proxy:
    """A proxy on a port of its own; passes everything on until a test says otherwise.

    Attributes:
        faults: What befalls requests; the first that fits counts.
        connections: How many there were.
        up: Bytes that came from clients.
        down: Bytes that came from the server.
        requests: Method and path, without the query, of each request.
    """

    def __init__(self, server: str) -> None:
        """Prepares the proxy.

        Args:
            server: Address of the server, `http://host:port`.
        """
        parts = urlsplit(server)
        self._target = str(parts.hostname), int(parts.port or 80)
        self.faults: list[Fault] = []
        self.connections = self.up = self.down = 0
        self.requests: list[str] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._run(self._accept, self._listener)
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._hang_up()
        for thread in self._threads:
            thread.join(_PATIENCE)
            assert not thread.is_alive()

    def fault(self, do: str, on: str = "", **how: object) -> Fault:
        """Adds a fault; see `Fault`."""
        made = Fault(do, on, **how)  # type: ignore[arg-type]  # checked by the dataclass's own names
        self.faults.append(made)
        return made

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Nobody listens, and every connection is gone."""
        self._hang_up()
        try:
            yield
        finally:
            self._listener = self._listen(self.port)
            self._run(self._accept, self._listener)

    def asked(self, pattern: str) -> int:
        """How many requests had this in method and path."""
        return sum(1 for request in list(self.requests) if re.search(pattern, request))

    def _listen(self, port: int) -> socket.socket:
        return socket.create_server(("127.0.0.1", port), backlog=64)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes whoever accepts
        self._listener.close()
        with self._lock:
            gone, self._open = self._open, set()
        for each in gone:
            _reset(each)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                server = socket.create_connection(self._target)
            except OSError:
                _reset(client)
                continue
            with self._lock:
                self._open |= {client, server}
            link = _Link(self, client, server)
            self._run(link.upwards)
            self._run(link.downwards)

    def befalls(self, head: bytes) -> Fault | None:
        """What befalls a request that begins like this."""
        text = head.partition(b"\r\n\r\n")[0].decode("latin-1")
        with self._lock:
            line = text.split(" ", 2)
            self.requests.append(f"{line[0]} {line[1].partition('?')[0]}")
            for fault in self.faults:
                if (fault.times is None or fault.hit < fault.times) and re.search(fault.on, text, re.DOTALL):
                    fault.hit += 1
                    return fault
        return None

    def wait(self, seconds: float) -> None:
        """Sleeps, unless the proxy ends."""
        self._over.wait(seconds)

    def forget(self, *sockets: socket.socket) -> None:
        """Takes note that these are closed."""
        with self._lock:
            self._open -= set(sockets)


@dataclass
class _Link:
    """A client's connection and the one to the server that belongs to it."""

    proxy: Proxy
    client: socket.socket
    server: socket.socket
    fault: Fault | None = None
    sent: int = 0
    received: int = 0
    answered: bool = True
    last: threading.Lock = field(default_factory=threading.Lock)

    def upwards(self) -> None:
        """Passes on what the client sends."""
        with self._direction(self.server):
            while data := self.client.recv(_BLOCK):
                self.proxy.up += len(data)
                if self.answered and _REQUEST.match(data):
                    self.fault, self.sent, self.received = self.proxy.befalls(data), 0, 0
                    self.answered = False
                fault = self.fault
                if fault and fault.do == "answer":
                    self._answer(fault, data)
                    return
                before, self.sent = self.sent, self.sent + len(data)
                if not self._pass(data, before, self.server, None if fault and fault.down else fault):
                    return

    def downwards(self) -> None:
        """Passes on what the server answers."""
        with self._direction(self.client):
            while data := self.server.recv(_BLOCK):
                self.proxy.down += len(data)
                self.answered = True
                before, self.received = self.received, self.received + len(data)
                fault = self.fault
                if not self._pass(data, before, self.client, fault if fault and fault.down else None):
                    return

    @contextmanager
    def _direction(self, to: socket.socket) -> Iterator[None]:
        """One direction; its end is passed on, and both sockets are closed when the other one ended too."""
        with suppress(OSError):
            yield
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)
        if not self.last.acquire(blocking=False):
            self._close()

    def _pass(self, data: bytes, before: int, to: socket.socket, fault: Fault | None) -> bool:
        """Sends bytes on as the fault lets it; whether the connection goes on."""
        left = fault.after - before if fault else len(data) + 1
        if fault is None or left >= len(data) or (left < 0 and fault.do in {"delay", "flip"}):
            to.sendall(data)
            return True
        left = max(left, 0)
        acts = {"delay": self._delay, "slow": self._slow, "reset": self._reset, "truncate": self._end}
        acts["flip"] = self._flip
        to.sendall(data[:left])
        return acts[fault.do](fault, data[left:], to)

    def _delay(self, fault: Fault, data: bytes, to: socket.socket) -> bool:
        self.proxy.wait(fault.seconds)
        to.sendall(data)
        return True

    def _slow(self, fault: Fault, data: bytes, to: socket.socket) -> bool:
        step = max(1, fault.rate // 20)
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            to.sendall(piece)
            self.proxy.wait(len(piece) / fault.rate)
        return True

    def _flip(self, _: Fault, data: bytes, to: socket.socket) -> bool:
        to.sendall(bytes([data[0] ^ 0x10]) + data[1:])
        return True

    def _reset(self, fault: Fault, _: bytes, __: socket.socket) -> bool:
        self.proxy.wait(fault.seconds)
        _reset(self.client)
        _reset(self.server)
        self.proxy.forget(self.client, self.server)
        return False

    def _end(self, _: Fault, __: bytes, to: socket.socket) -> bool:
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            self.client.shutdown(socket.SHUT_WR)
        if to is self.server:
            self._drain()
        self._close()
        return False

    def _answer(self, fault: Fault, data: bytes) -> None:
        """Answers in the server's place, when the client has sent its whole request or waits for leave to."""
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        left = int(length[1]) - len(body) if length else 0
        if b"100-continue" not in head.lower():
            while left > 0 and (more := self.client.recv(_BLOCK)):
                self.proxy.up += len(more)
                left -= len(more)
        said = f"HTTP/1.1 {fault.status} Fault\r\nContent-Type: application/xml\r\nConnection: close\r\n"
        body = b"" if data.startswith(b"HEAD ") else fault.body
        self.client.sendall(f"{said}Content-Length: {len(fault.body)}\r\n\r\n".encode() + body)
        self.client.shutdown(socket.SHUT_WR)
        self._drain()
        self._close()

    def _drain(self) -> None:
        """Reads what still comes: closed before that, the connection would be reset instead of ended."""
        self.client.settimeout(_PATIENCE)
        until = time.monotonic() + _PATIENCE
        with suppress(OSError):
            while time.monotonic() < until and self.client.recv(_BLOCK):
                pass

    def _close(self) -> None:
        for each in (self.client, self.server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes whoever reads it
            each.close()
        self.proxy.forget(self.client, self.server)


def _reset(connection: socket.socket) -> None:
    """Closes it so that the other side gets RST, whoever reads it here is woken."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
    connection.close()
