"""Sources of blobs for downloads: in memory, and a real HTTP server that answers ranges."""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client.blobs.download import Download
from pt2hub.client.blobs.partial import PartialFile
from support.stub import serving

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pt2hub.client.http.transport import Transport

PIECE = 1000


@dataclass
class MemoryBlob:
    """Bytes behind the port of a download.

    Attributes:
        reads: The ranges that were read.
        on_chunk: Called before each chunk with its first byte; may raise.
    """

    data: bytes
    connections: int = 1
    ranged: bool = True
    seal: str = ""
    url: str = "memory:blob"
    server: str = "memory:"
    reads: list[tuple[int, int]] = field(default_factory=list)
    on_chunk: Callable[[int], object] = lambda _: None
    piece: int = PIECE

    def __call__(self) -> MemoryBlob:
        """Connects, as `BlobCache.get` asks for it."""
        return self

    def read(self, start: int, stop: int) -> Generator[bytes]:
        """The bytes of a range."""
        self.reads.append((start, stop))
        for at in range(start, min(stop, len(self.data)), self.piece):
            self.on_chunk(at)
            yield self.data[at : min(at + self.piece, stop)]


class RangeServer(ThreadingHTTPServer):
    """A server of one blob that answers ranges, counts what it sends, and misbehaves where it is told to.

    Attributes:
        data: The blob.
        etag: Its ETag.
        sent: Bytes of bodies that were sent.
        ranges: The `Range` header of each request, empty without one.
        rate: Bytes per second of each connection; None for no limit.
        ignores_ranges: Whether it answers everything with the whole blob.
        silent: Requests that it accepts and never answers; -1 for all.
        refusals: Requests that it answers with 503 SlowDown first.
        on_request: Called with the range of each request.
        sending: Bodies that are being sent.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.etag = '"one"'
        self.sent = 0
        self.ranges: list[str] = []
        self.rate: float | None = None
        self.ignores_ranges = False
        self.silent = 0
        self.refusals = 0
        self.on_request: Callable[[str], object] = lambda _: None
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.sending = 0
        super().__init__(("127.0.0.1", 0), _RangeHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def start_over(self) -> None:
        """Counts from nothing, once the bodies of clients that hung up have ended: their last piece still counts."""
        until = time.monotonic() + 60
        while self.sending:
            assert time.monotonic() < until
            time.sleep(0.01)
        self.sent = 0
        self.ranges.clear()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of these tests."""


class _RangeHandler(BaseHTTPRequestHandler):
    server: RangeServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        asked = self.headers.get("Range", "")
        with server.lock:
            server.ranges.append(asked)
            silent, server.silent = server.silent, server.silent - (server.silent > 0)
            refused, server.refusals = server.refusals > 0, max(0, server.refusals - 1)
        server.on_request(asked)
        if silent:
            server.over.wait(600)
            self.close_connection = True
            return
        if refused:
            self._refuse()
            return
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
        whole = found is None or server.ignores_ranges
        start = 0 if whole or found is None else int(found[1])
        stop = len(server.data) if whole or found is None or not found[2] else int(found[2]) + 1
        self.send_response(200 if whole else 206)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", server.etag)
        if not whole:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(server.data)}")
        self.end_headers()
        with suppress(OSError), self._counted():
            self._send(start, stop)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        server = self.server
        with server.lock:
            server.sending += 1
        try:
            yield
        finally:
            with server.lock:
                server.sending -= 1

    def _refuse(self) -> None:
        body = b"<Error><Code>SlowDown</Code></Error>"
        self.send_response(503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send(self, start: int, stop: int) -> None:
        server, step = self.server, 1 << 16
        for at in range(start, stop, step):
            piece = server.data[at : min(at + step, stop)]
            self.wfile.write(piece)
            with server.lock:
                server.sent += len(piece)
            if server.rate:
                time.sleep(len(piece) / server.rate)

    def log_message(self, *args: Any) -> None:
        pass


def downloaded(transport: Transport, path: str, size: int) -> bytes:
    """What a download brings, into a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        partial = PartialFile.open(Path(folder), "0" * 64, size, watch=lambda _: None)
        try:
            Download(transport.blob(path, size), partial, lambda _: None).run()
            data = bytearray(size)
            assert partial.read_into(memoryview(data), 0) == size
        finally:
            partial.close()
    return bytes(data)


@contextmanager
def serving_blob(data: bytes) -> Iterator[RangeServer]:
    """A server of one blob, which ends with the block."""
    with serving(RangeServer(data)) as server:
        try:
            yield server
        finally:
            server.over.set()
