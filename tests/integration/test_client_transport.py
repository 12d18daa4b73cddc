"""What a server, or something that is none, answers becomes our errors; broken connections are tried again."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.transport import Transport
from pt2hub.domain.digests import CHUNK
from pt2hub.errors import BadResponse, Detail, InvalidInput, ServerUnreachable, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = bytes(range(256)) * 8
LARGE = DATA * (3 * CHUNK // len(DATA))


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

    do_GET = do_POST = do_PUT = do_HEAD = _answer  # noqa: N815  # the base class's names

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def transport(stub: Stub) -> Iterator[Transport]:
    made = Transport(stub.url, token="pt2_secret")
    yield made
    made.close()


def test_the_token_goes_with_every_request_and_queries_are_quoted(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=b'{"a": 1}')]
    assert transport.get("/x", {"reference": "team/net@prod"}) == {"a": 1}
    request, headers, _ = stub.asked[0]
    assert request.startswith("GET /x?reference=team%2Fnet%40prod ")
    assert headers["Authorization"] == "Bearer pt2_secret"


def test_a_problem_document_is_the_servers_own_error(stub: Stub, transport: Transport) -> None:
    detail = {"path": "inputs[0].shape", "message": "wrong", "given": "1", "allowed": "2"}
    problem = {"type": "about:blank", "title": "t", "status": 422, "code": "invalid_input", "kind": "usage"}
    body = json.dumps(problem | {"detail": "Some fields are wrong", "hint": "Mend them", "details": [detail]})
    stub.script = [Answer(422, body.encode(), "application/problem+json; charset=utf-8")]
    with pytest.raises(InvalidInput, match="Some fields are wrong") as caught:
        transport.post("/x", b"{}")
    assert caught.value.details == (Detail(**detail),)
    assert caught.value.hint == "Mend them"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>Sign in</html>", "text/html"),
        Answer(404, b"<html>nginx</html>", "text/html"),
        Answer(502, b"", "text/plain"),
        Answer(200, b"{half", "application/json"),
        Answer(500, b"[]", "application/problem+json"),
    ],
)
def test_anything_else_is_not_pt2hub(stub: Stub, transport: Transport, answer: Answer) -> None:
    stub.script = [answer]
    with pytest.raises(BadResponse, match=f"HTTP {answer.status}.*(?s:.)*PT2HUB_URL names"):
        transport.get("/x")


def test_nobody_there_says_where_and_what_to_do() -> None:
    with pytest.raises(ServerUnreachable, match="Connection refused") as caught:
        Transport("http://127.0.0.1:1").get("/x")
    assert caught.value.where == "http://127.0.0.1:1"
    assert "pt2hub up" in str(caught.value.hint)


def test_reading_is_tried_again_and_publishing_is_not(stub: Stub, transport: Transport) -> None:
    body = json.dumps({"code": "storage_unavailable", "kind": "transient", "detail": "away"}).encode()
    away = Answer(503, body, "application/problem+json")
    stub.script = [away, away, Answer(body=b"7")]
    assert transport.get("/x") == 7
    stub.script = [away]
    with pytest.raises(Exception, match="away"):
        transport.post("/x", b"{}")
    assert stub.methods == ["GET", "GET", "GET", "POST"]


def test_an_upload_that_is_tried_again_begins_at_its_begin(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(503, b"", "text/plain"), Answer(201)]
    transport.put("/x", io.BytesIO(DATA), len(DATA))
    assert [body for _, _, body in stub.asked] == [DATA, DATA]


def test_head_tells_presence(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(200), Answer(404), Answer(401)]
    assert transport.exists("/x") is True
    assert transport.exists("/x") is False
    with pytest.raises(BadResponse, match="HTTP 401"):
        transport.exists("/x")


def test_a_server_in_trouble_is_no_foreign_server_to_head(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(503, kind="application/problem+json")]
    with pytest.raises(ServerUnreachable, match="HTTP 503") as caught:
        transport.exists("/x")
    assert caught.value.hint


def test_a_download_goes_on_where_the_connection_broke(stub: Stub, transport: Transport) -> None:
    rest = {"Content-Range": f"bytes {CHUNK}-{len(LARGE) - 1}/{len(LARGE)}"}
    stub.script = [Answer(body=LARGE, cut=CHUNK + 1000), Answer(206, LARGE[CHUNK:], headers=rest)]
    assert b"".join(transport.stream("/x", len(LARGE))) == LARGE
    assert stub.asked[1][1]["Range"] == f"bytes={CHUNK}-"


def test_a_download_that_always_breaks_ends(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=DATA, cut=0)]
    with pytest.raises(ServerUnreachable):
        list(transport.stream("/x", len(DATA)))


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1])
def test_another_length_than_announced_is_refused_before_a_byte_is_taken(
    stub: Stub, transport: Transport, size: int
) -> None:
    stub.script = [Answer(body=DATA)]
    with pytest.raises(BadResponse, match=f"{len(DATA)} bytes from 0 where {size} from 0 belong"):
        next(iter(transport.stream("/x", size)))


def test_a_server_that_ignores_the_range_is_not_appended(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=LARGE, cut=CHUNK + 1000), Answer(body=LARGE)]
    with pytest.raises(BadResponse, match="from 0 where"):
        list(transport.stream("/x", len(LARGE)))


def test_errors_inside_a_download_are_translated_too(stub: Stub, transport: Transport) -> None:
    body = json.dumps({"code": "unauthorized", "kind": "usage", "detail": "no"}).encode()
    stub.script = [Answer(401, body, "application/problem+json")]
    with pytest.raises(Unauthorized):
        list(transport.stream("/x", len(DATA)))


def test_a_connection_is_clean_after_an_answer_that_was_not_read(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=LARGE), Answer(body=b"7")]
    stream = transport.stream("/x", len(LARGE))
    next(iter(stream))
    del stream
    assert transport.get("/x") == 7
