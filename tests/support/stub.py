"""A server that answers from a script: what proxies, other releases and broken connections do to a client."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pt2hub.client.blobs import download
from pt2hub.client.http import presigned, transport

if TYPE_CHECKING:
    from collections.abc import Iterator

S = TypeVar("S", bound=ThreadingHTTPServer)


@dataclass
class Answer:
    """What the stub answers to one request; `cut` closes the connection after that many bytes."""

    status: int = 200
    body: bytes = b"{}"
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


class Stub(ThreadingHTTPServer):
    """A server that answers from a script and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of these tests."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def methods(self) -> list[str]:
        return [request.partition(" ")[0] for request, _, _ in self.asked]


class _Handler(BaseHTTPRequestHandler):
    server: Stub
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.requestline, dict(self.headers), body))
        script = self.server.script
        answer = script.pop(0) if len(script) > 1 else script[0]
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        for name, value in ({"Content-Length": str(len(answer.body))} | answer.headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: answer.cut])
        if answer.cut is not None:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815  # the base class's names

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def serving(made: S) -> Iterator[S]:
    """A server, answering while it is entered."""
    with made as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving(Stub()) as server:
        yield server


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients try as often as always, and wait less between their tries."""
    monkeypatch.setattr(presigned, "_WAITS", (0.01,) * len(presigned._WAITS))
    monkeypatch.setattr(transport, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.01)
