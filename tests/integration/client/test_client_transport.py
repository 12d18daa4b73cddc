"""What a server, or something that is none, answers becomes our errors; broken connections are tried again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.client.http.server_away import ServerAwayWarning
from pt2hub.client.http.transfers import Slice
from pt2hub.client.http.transport import Transport
from pt2hub.domain.digests import CHUNK
from pt2hub.errors import (
    BadResponse,
    Detail,
    InvalidInput,
    ServerUnreachable,
    Unauthorized,
    UsageError,
)
from pt2hub.wire.responses import ModelPage
from support.blob_sources import downloaded
from support.stub import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.stub import Stub

PROBLEM = "application/problem+json"
NOBODY = "http://127.0.0.1:1"
DATA = bytes(range(256)) * 8
LARGE = DATA * (3 * CHUNK // len(DATA))


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
        transport.send("POST", "/x", b"{}")
    assert caught.value.details == (Detail(**detail),)
    assert caught.value.hint == "Mend them"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>Sign in</html>", "text/html"),
        Answer(404, b"<html>nginx</html>", "text/html"),
        Answer(520, b"", "text/plain"),
        Answer(200, b"{half", "application/json"),
        Answer(500, b"[]", "application/problem+json"),
    ],
)
def test_anything_else_is_not_pt2hub(stub: Stub, transport: Transport, answer: Answer) -> None:
    stub.script = [answer]
    with pytest.raises(BadResponse, match=f"HTTP {answer.status}.*(?s:.)*PT2HUB_URL is the address"):
        transport.get("/x")


@pytest.mark.parametrize(
    ("status", "hint"), [(413, "client_max_body_size"), (502, "that the API is running"), (504, "timeouts")]
)
def test_what_a_proxy_says_of_itself_has_a_hint_of_its_own(
    stub: Stub, transport: Transport, status: int, hint: str
) -> None:
    stub.script = [Answer(status, b"<html>nginx</html>", "text/html")]
    with pytest.raises(BadResponse, match=f"HTTP {status}.*(?s:.)*{hint}"):
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
        transport.send("POST", "/x", b"{}")
    assert stub.methods == ["GET", "GET", "GET", "POST"]


def test_an_upload_that_is_tried_again_begins_at_its_begin(
    stub: Stub, transport: Transport, tmp_path: Path
) -> None:
    stub.script = [Answer(503, b"", "text/plain"), Answer(201)]
    (tmp_path / "file").write_bytes(DATA)
    with Slice(tmp_path / "file", 0, len(DATA), lambda _: None) as body:
        transport.put("/x", body, len(DATA))
    assert [body for _, _, body in stub.asked] == [DATA, DATA]


def test_a_download_goes_on_where_the_connection_broke(stub: Stub, transport: Transport) -> None:
    came = CHUNK + 1000
    rest = {"Content-Range": f"bytes {came}-{len(LARGE) - 1}/{len(LARGE)}"}
    stub.script = [Answer(body=LARGE, cut=came), Answer(206, LARGE[came:], headers=rest)]
    assert downloaded(transport, "/x", len(LARGE)) == LARGE
    assert stub.asked[1][1]["Range"] == f"bytes={came}-"


def test_a_download_that_always_breaks_ends(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=DATA, cut=0)]
    with pytest.raises(ServerUnreachable):
        downloaded(transport, "/x", len(DATA))


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1])
def test_another_length_than_announced_is_refused_before_a_byte_is_taken(
    stub: Stub, transport: Transport, size: int
) -> None:
    stub.script = [Answer(body=DATA)]
    with pytest.raises(BadResponse, match=rf"{len(DATA)} bytes \(whole\), expected {size} from 0"):
        downloaded(transport, "/x", size)


def test_a_server_that_ignores_the_range_is_not_appended(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=LARGE, cut=CHUNK + 1000), Answer(body=LARGE)]
    assert downloaded(transport, "/x", len(LARGE)) == LARGE
    assert [headers.get("Range") for _, headers, _ in stub.asked] == [None, f"bytes={CHUNK + 1000}-", None]


def test_errors_inside_a_download_are_translated_too(stub: Stub, transport: Transport) -> None:
    body = json.dumps({"code": "unauthorized", "kind": "usage", "detail": "no"}).encode()
    stub.script = [Answer(401, body, "application/problem+json")]
    with pytest.raises(Unauthorized):
        downloaded(transport, "/x", len(DATA))


def test_a_connection_is_clean_after_an_answer_that_was_not_read(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=LARGE), Answer(body=b"7")]
    stream = transport.blob("/x", len(LARGE)).read(0, len(LARGE))
    next(stream)
    del stream
    assert transport.get("/x") == 7


# -- where an error sends people -------------------------------------------------------------------------


def test_an_unreachable_server_is_named_with_the_setting_that_named_it(tmp_path: Path) -> None:
    unset = ClientConfig.from_environ({"PT2HUB_HOME": str(tmp_path)})
    assert "default, since neither PT2HUB_URL nor" in str(unset.url_from)
    for environ, expected in (
        ({"PT2HUB_URL": NOBODY}, "The address comes from PT2HUB_URL."),
        ({}, f"The address comes from {tmp_path / 'config.toml'}."),
    ):
        (tmp_path / "config.toml").write_text(f'url = "{NOBODY}"\n')
        config = ClientConfig.from_environ({"PT2HUB_HOME": str(tmp_path), **environ})
        with pytest.raises(ServerUnreachable) as caught, Client(config) as client:
            client.models.get("team/net")
        assert caught.value.where == NOBODY
        assert str(caught.value.hint).endswith(expected)


def test_an_address_given_by_the_program_is_not_blamed_on_a_setting(tmp_path: Path) -> None:
    config = ClientConfig.from_environ({"PT2HUB_HOME": str(tmp_path), "PT2HUB_URL": "http://127.0.0.1:2"})
    with pytest.raises(ServerUnreachable) as caught, Client(config, url=NOBODY) as client:
        client.models.get("team/net")
    assert "comes from" not in str(caught.value.hint)


@pytest.mark.parametrize(
    ("token", "token_from", "words"),
    [
        (None, None, "No token was sent: set PT2HUB_TOKEN"),
        ("pt2_x", "PT2HUB_TOKEN", "The token sent comes from PT2HUB_TOKEN."),
        ("pt2_x", "/home/me/config.toml", "The token sent comes from /home/me/config.toml."),
    ],
)
def test_a_refused_token_is_traced_to_its_setting(
    stub: Stub, token: str | None, token_from: str | None, words: str
) -> None:
    body = json.dumps({"code": "unauthorized", "kind": "usage", "detail": "no", "hint": "Make one."}).encode()
    stub.script = [Answer(401, body, PROBLEM)]
    transport = Transport(stub.url, token=token, token_from=token_from)
    with pytest.raises(Unauthorized) as caught:
        transport.send("POST", "/x", b"{}")
    assert str(caught.value.hint).startswith(f"Make one. {words}")


def test_what_answered_instead_of_pt2hub_is_named(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(404, b"404 page not found\n", "text/plain", {"Server": "caddy"})]
    with pytest.raises(BadResponse, match=r"HTTP 404 with text/plain.*'404 page not found'") as caught:
        transport.get("/api/v1/models")
    assert "caddy" in caught.value.message
    assert caught.value.where == stub.url


def test_another_json_api_is_recognised_by_its_form(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=b'{"items": []}')]
    with pytest.raises(BadResponse, match=r"ModelPage\.models is missing") as caught:
        transport.fetch(ModelPage, "/api/v1/models")
    assert caught.value.where == f"{stub.url}/api/v1/models"
    assert "Check that PT2HUB_URL" in str(caught.value.hint)


def test_a_code_of_a_newer_server_keeps_its_kind_and_stays_to_be_seen(
    stub: Stub, transport: Transport
) -> None:
    body = json.dumps({"code": "quota_spent", "kind": "usage", "detail": "No more today."}).encode()
    stub.script = [Answer(402, body, PROBLEM)]
    with pytest.raises(UsageError, match="No more today") as caught:
        transport.get("/x")
    assert (caught.value.code, caught.value.as_dict()["code"]) == ("quota_spent", "quota_spent")
    assert UsageError.code == "usage"


# -- answers that break off ------------------------------------------------------------------------------


def test_json_that_breaks_off_is_asked_for_again(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=b'{"a": 1}', cut=4), Answer(body=b'{"a": 1}')]
    assert transport.get("/x") == {"a": 1}
    stub.script = [Answer(body=b"manifest", cut=4), Answer(body=b"manifest")]
    assert transport.read("/manifest") == b"manifest"


def test_json_that_always_breaks_off_says_how_much_came(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=b'{"a": 1}', cut=4)]
    with pytest.raises(ServerUnreachable, match="closed after 4 of 8 bytes"):
        transport.get("/x")
    assert len(stub.asked) == 3
    with pytest.raises(ServerUnreachable, match="connection closed"):
        transport.send("POST", "/x", b"{}")
    assert stub.methods == ["GET", "GET", "GET", "POST"]


def test_a_blob_that_stays_cut_says_how_much_came(stub: Stub, transport: Transport) -> None:
    rest = {"Content-Range": f"bytes {CHUNK}-{len(LARGE) - 1}/{len(LARGE)}"}
    stub.script = [Answer(body=LARGE, cut=CHUNK), Answer(206, LARGE[CHUNK:], headers=rest, cut=0)]
    with pytest.raises(ServerUnreachable, match=f"after {CHUNK} of {len(LARGE)} bytes") as caught:
        downloaded(transport, "/x", len(LARGE))
    assert caught.value.context == {"received": CHUNK, "expected": len(LARGE)}
    assert stub.methods == ["GET"] * 3


def test_a_change_that_is_sent_elsewhere_is_not_followed(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(301, b"", headers={"Location": "https://hub.test/x"}), Answer()]
    with pytest.raises(BadResponse, match=r"redirects this request to 'https://hub\.test/x'") as caught:
        transport.send("POST", "/x", b"{}")
    assert "Set PT2HUB_URL" in str(caught.value.hint)
    assert len(stub.asked) == 1


def test_reading_follows_a_server_that_moved_and_stops_in_a_circle(stub: Stub, transport: Transport) -> None:
    moved = Answer(302, b"", headers={"Location": "/y"})
    stub.script = [moved, Answer(body=b'{"a": 1}')]
    assert transport.get("/x") == {"a": 1}
    stub.script = [moved]
    with pytest.raises(BadResponse, match="redirects this request to '/y'"):
        transport.get("/x")


@pytest.mark.usefixtures("no_collector")  # a finalizer that runs that deep fails, too
def test_json_that_is_nested_too_deeply_is_not_pt2hubs(stub: Stub, transport: Transport) -> None:
    stub.script = [Answer(body=b"[" * 100_000)]
    with pytest.raises(BadResponse, match="is not a response of pt2hub"):
        transport.get("/x")


BUILD = {"id": "b", "model": "team/net", "number": 1, "target": "t", "attempt": 1, "created_at": "now"}


def log_line(seq: int, text: str) -> dict[str, object]:
    return {"seq": seq, "at": 0.0, "step": "fetch", "level": "info", "text": text}


RUNNING, SUCCEEDED = BUILD | {"state": "running"}, BUILD | {"state": "succeeded"}
NO_LINES = Answer(body=b'{"lines": []}')


def followed(stub: Stub, home: Path) -> list[str]:
    with Client(ClientConfig(home=home, url=stub.url)) as client:
        return [item.text for item in client.builds.follow_logs("a/../b")]


def paths(stub: Stub) -> list[str]:
    return [request.split()[1].removeprefix("/api/v1/builds/a%2F..%2Fb") for request, _, _ in stub.asked]


def test_a_log_is_followed_over_a_restart_of_the_server(stub: Stub, tmp_path: Path) -> None:
    stub.script = [
        *[Answer(502, b"<html>", "text/html")] * 5,  # more than the transport alone endures
        Answer(body=json.dumps(SUCCEEDED).encode()),
        Answer(body=json.dumps({"lines": [log_line(1, "hello")]}).encode()),
        NO_LINES,
    ]
    with pytest.warns(ServerAwayWarning, match="answers: HTTP 502; trying again until"):
        assert followed(stub, tmp_path) == ["hello"]
    assert paths(stub) == [*[""] * 6, "/logs?after=0", "/logs?after=1"]


def test_a_log_is_asked_for_until_the_build_has_ended_and_no_line_follows(stub: Stub, tmp_path: Path) -> None:
    more = Answer(body=b'{"attempt": 1, "lines": [], "complete": false}')
    stub.script = [
        Answer(body=json.dumps(RUNNING).encode()),
        Answer(body=json.dumps({"attempt": 1, "lines": [log_line(1, "one")]}).encode()),
        more,
        Answer(body=json.dumps(SUCCEEDED).encode()),
        more,
        Answer(body=json.dumps(SUCCEEDED).encode()),
        Answer(body=json.dumps({"attempt": 1, "lines": [log_line(2, "two")]}).encode()),
        Answer(body=b'{"attempt": 1, "lines": [], "complete": true}'),
    ]
    assert followed(stub, tmp_path) == ["one", "two"]
    assert paths(stub) == [
        "",
        "/logs?after=0",
        "/logs?after=1",
        "",
        "/logs?after=1",
        "",
        "/logs?after=1",
        "/logs?after=2",
    ]


def test_the_rest_of_an_attempt_comes_before_the_lines_of_the_next(stub: Stub, tmp_path: Path) -> None:
    stub.script = [
        Answer(body=json.dumps(RUNNING).encode()),
        Answer(body=json.dumps({"attempt": 1, "lines": [log_line(1, "one")]}).encode()),
        Answer(body=json.dumps({"attempt": 1, "lines": []}).encode()),
        Answer(body=json.dumps(SUCCEEDED | {"attempt": 2}).encode()),
        Answer(body=json.dumps({"attempt": 1, "lines": [log_line(2, "two")]}).encode()),
        Answer(body=json.dumps({"attempt": 1, "lines": []}).encode()),
        Answer(body=json.dumps({"attempt": 2, "lines": [log_line(1, "again")]}).encode()),
        Answer(body=json.dumps({"attempt": 2, "lines": []}).encode()),
    ]
    assert followed(stub, tmp_path) == ["one", "two", "again"]
    assert paths(stub)[4:] == [
        "/logs?after=1&attempt=1",
        "/logs?after=2&attempt=1",
        "/logs?after=0",
        "/logs?after=1",
    ]
