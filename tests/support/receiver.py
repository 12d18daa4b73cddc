"""A receiver of webhooks at an address of this machine, which answers as a test says."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Received:
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        """The event's document."""
        document: dict[str, Any] = json.loads(self.body)
        return document


@dataclass
class Receiver:
    """The receiver.

    Attributes:
        received: Requests in the order in which they came.
        answers: Status codes of the next requests by path, then 200; `hang` and `drip` never end an answer.
    """

    port: int = 0
    received: list[Received] = field(default_factory=list)
    answers: dict[str, list[int | str]] = field(default_factory=dict)
    closed: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str = "/hook") -> list[Received]:
        """What came to a path."""
        return [item for item in self.received if item.path == path]

    def types(self, path: str = "/hook") -> list[str]:
        """Types of the events that came to a path, sorted."""
        return sorted(item.event["type"] for item in self.at(path))

    def wait(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        """Waits until a condition holds."""
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, [(item.path, item.event["type"]) for item in self.received]
            time.sleep(0.02)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that answers with 200."""
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.received.append(Received(self.path, headers, body))
            script = made.answers.get(self.path, [])
            answer = script.pop(0) if script else 200
            if answer == "hang":
                made.closed.wait(20)
            elif answer == "drip":
                self._drip()
            else:
                self._answer(int(answer))

        def _answer(self, status: int) -> None:
            text = f"status {status} ".encode() * 200
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            if status // 100 == 3:
                self.send_header("Location", made.url("/elsewhere"))
            self.end_headers()
            self.wfile.write(text)

        def _drip(self) -> None:
            while not made.closed.wait(0.05):
                try:
                    self.wfile.write(b"H")
                except OSError:
                    return

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.closed.set()
    server.shutdown()
    server.server_close()
