"""Uploads over a real socket, to the server that runs in production: what is refused, and when."""

from __future__ import annotations

import http.client
import socket
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import DigestMismatch, RequestTimeout, StorageFull, TooLarge, Unauthorized, UploadTruncated
from pt2hub.server.api.resources.blobs import RESERVE_BYTES
from pt2hub.server.gunicorn_server import THREADS
from pt2hub.server.up import port
from pt2hub.wire.problems import from_dict
from support.api_process import ApiProcess, answer, running_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pt2hub.errors import Pt2hubError

LIMIT = 1 << 20
VAST = 1 << 49
DATA = bytes(range(256)) * 16
PATH = f"/api/v1/blobs/{digest_bytes(DATA)}"
LENGTH = f"Content-Length: {len(DATA)}"
EXPECT = "Expect: 100-continue"
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture(scope="module")
def api(start_api: Callable[..., AbstractContextManager[ApiProcess]]) -> Iterator[ApiProcess]:
    """An API that takes 1 MiB."""
    with start_api(PT2HUB_MAX_BLOB_BYTES=str(LIMIT)) as running:
        yield running


@pytest.fixture(scope="module")
def boundless(start_api: Callable[..., AbstractContextManager[ApiProcess]]) -> Iterator[ApiProcess]:
    """An API that would take more than any disk holds."""
    with start_api(PT2HUB_MAX_BLOB_BYTES=str(VAST)) as running:
        yield running


def refusal(connection: socket.socket, status: int) -> Pt2hubError:
    found, document = answer(connection)
    assert (found, document["status"]) == (status, status), document
    return from_dict(document)


def put(api: ApiProcess, data: bytes, digest: str | None = None) -> tuple[int, dict[str, object]]:
    with api.connect() as connection:
        path = f"/api/v1/blobs/{digest or digest_bytes(data)}"
        connection.sendall(api.head("PUT", path, f"Content-Length: {len(data)}") + data)
        return answer(connection)


@pytest.mark.parametrize("expect", [(), (EXPECT,)], ids=["", "expecting"])
def test_an_upload_above_the_limit_is_refused_while_only_its_headers_were_sent(
    api: ApiProcess, expect: tuple[str, ...]
) -> None:
    with api.connect() as connection:
        connection.sendall(api.head("PUT", PATH, f"Content-Length: {LIMIT + 1}", *expect))
        assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 413"  # and not "100 Continue" before it
        error = refusal(connection, 413)
    assert isinstance(error, TooLarge)
    assert error.context == {"limit": LIMIT}
    assert "PT2HUB_MAX_BLOB_BYTES" in (error.hint or "")


def test_an_upload_without_a_token_is_refused_while_only_its_headers_were_sent(api: ApiProcess) -> None:
    with api.connect() as connection:
        connection.sendall(api.head("PUT", PATH, LENGTH, EXPECT, token=False))
        assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 401"
        assert isinstance(refusal(connection, 401), Unauthorized)


@pytest.mark.parametrize("expect", [(), (EXPECT,)], ids=["", "expecting"])
def test_an_upload_larger_than_the_disk_is_refused_while_only_its_headers_were_sent(
    boundless: ApiProcess, expect: tuple[str, ...]
) -> None:
    with boundless.connect() as connection:
        connection.sendall(boundless.head("PUT", PATH, f"Content-Length: {VAST - 1}", *expect))
        assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 507"
        error = refusal(connection, 507)
    assert isinstance(error, StorageFull)
    assert error.context["announced"] == VAST - 1
    assert error.context["free"] > error.context["reserve"] == RESERVE_BYTES
    assert boundless.stored() == []


def test_who_asks_before_sending_is_told_to_go_on_once_and_then_succeeds(api: ApiProcess) -> None:
    data = b"asked first"
    with api.connect() as connection:
        path = f"/api/v1/blobs/{digest_bytes(data)}"
        connection.sendall(api.head("PUT", path, f"Content-Length: {len(data)}", EXPECT))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(data)
        assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 201"
        assert answer(connection) == (201, {"digest": digest_bytes(data), "size": len(data)})


def test_an_upload_that_ends_early_is_told_how_much_came_and_nothing_is_kept(api: ApiProcess) -> None:
    before = api.stored()
    with api.connect() as connection:
        connection.sendall(api.head("PUT", PATH, LENGTH) + DATA[:1000])
        connection.shutdown(socket.SHUT_WR)
        error = refusal(connection, 400)
    assert isinstance(error, UploadTruncated)
    assert error.context == {"announced": len(DATA), "received": 1000}
    assert ["1000" in error.message, str(len(DATA)) in error.message] == [True, True]
    assert api.stored() == before
    assert api.ask("GET", PATH)[0].status == 404


@pytest.mark.parametrize("sent", [b"", b"3e8\r\n" + DATA[:500], b"3e8\r\n" + DATA[:1000] + b"\r\n"])
def test_a_chunked_upload_without_its_end_is_truncated_too(api: ApiProcess, sent: bytes) -> None:
    before = api.stored()
    with api.connect() as connection:
        connection.sendall(api.head("PUT", PATH, CHUNKED) + sent)
        connection.shutdown(socket.SHUT_WR)
        assert isinstance(refusal(connection, 400), UploadTruncated)
    assert api.stored() == before


@pytest.mark.parametrize(("method", "path"), [("PUT", PATH), ("POST", "/api/v1/versions")])
def test_a_chunk_that_is_malformed_is_the_senders_fault(api: ApiProcess, method: str, path: str) -> None:
    with api.connect() as connection:
        connection.sendall(api.head(method, path, CHUNKED) + b"zz\r\n")
        assert answer(connection)[0] == 400


def test_who_is_refused_before_sending_is_told_that_the_connection_ends(api: ApiProcess) -> None:
    with api.connect() as connection:
        connection.sendall(api.head("PUT", PATH, f"Content-Length: {LIMIT + 1}", EXPECT))
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert (response.status, response.headers["Connection"]) == (413, "close")


def test_who_speaks_the_older_protocol_is_not_asked_for_the_body(api: ApiProcess) -> None:
    with api.connect() as connection:
        data = b"sent at once"
        path = f"/api/v1/blobs/{digest_bytes(data)}"
        head = api.head("PUT", path, f"Content-Length: {len(data)}", EXPECT)
        connection.sendall(head.replace(b"HTTP/1.1", b"HTTP/1.0") + data)
        assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.0 201"


def test_who_stalls_in_the_headers_is_let_go_so_that_others_are_answered(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "_STALLED_SECONDS", 1)
    with running_api(tmp_path, migrated_url) as api, ExitStack() as stalled:
        for _ in range(THREADS):
            stalled.enter_context(api.connect()).sendall(b"GET /healthz HTTP/1.1\r\nHo")
        assert api.ask("GET", "/healthz")[0].status == 200


def test_an_uploader_that_stalls_is_told_so(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "_STALLED_SECONDS", 1)
    with running_api(tmp_path, migrated_url) as api, api.connect() as connection:
        connection.sendall(api.head("PUT", PATH, LENGTH) + DATA[:1000])
        assert isinstance(refusal(connection, 408), RequestTimeout)


def test_an_uploader_that_vanishes_leaves_nothing_and_the_next_one_succeeds(api: ApiProcess) -> None:
    before = api.stored()
    for _ in range(20):  # more than there are threads
        with api.connect() as connection:
            connection.sendall(api.head("PUT", PATH, LENGTH) + DATA[:1000])
    assert put(api, DATA)[0] == 201
    assert put(api, DATA)[0] == 201  # known bytes are checked and kept
    assert len(api.stored()) == len(before) + 1


def test_a_chunked_upload_above_the_limit_is_cut_off(api: ApiProcess) -> None:
    before = api.stored()
    sent = 0
    with api.connect() as connection:
        connection.sendall(api.head("PUT", PATH, CHUNKED))
        try:
            while sent < 64 * LIMIT:
                connection.sendall(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
                sent += 1 << 16
        except OSError:  # the server hung up
            pass
        assert sent < 64 * LIMIT
        assert isinstance(refusal(connection, 413), TooLarge)
    assert api.stored() == before


def test_other_bytes_than_the_digest_says_are_refused(api: ApiProcess) -> None:
    before = api.stored()
    status, document = put(api, b"other", digest_bytes(b"bytes"))
    assert (status, type(from_dict(document))) == (400, DigestMismatch)
    assert digest_bytes(b"other") in str(document["detail"])
    assert api.stored() == before


def unshared() -> bool:
    done = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False)
    return done.returncode == 0


def test_a_disk_that_fills_up_in_the_middle_is_told_and_keeps_its_reserve(
    tmp_path: Path, migrated_url: str
) -> None:
    if not unshared():
        pytest.skip("no user namespaces here, so no disk that could fill up")
    size = RESERVE_BYTES + (2 << 20)
    mount = f'mount -t tmpfs -o size={size} none "{tmp_path}/blobs" && exec "$@"'
    before = ["unshare", "-rm", "sh", "-c", mount, "sh"]
    with running_api(tmp_path, migrated_url, before=before) as api:
        with api.connect() as connection:
            connection.sendall(api.head("PUT", PATH, f"Content-Length: {4 << 20}"))
            error = refusal(connection, 507)
            assert isinstance(error, StorageFull)
            assert error.context["announced"] == 4 << 20
        with api.connect() as connection:
            connection.sendall(api.head("PUT", PATH, CHUNKED))  # nothing announced
            try:
                for _ in range(size >> 15):  # twice as much as there is room for
                    connection.sendall(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
            except OSError:  # the server hung up
                pass
            error = refusal(connection, 507)
            assert isinstance(error, StorageFull)
            assert error.context["free"] >= RESERVE_BYTES
        assert api.stored() == []
        assert put(api, DATA)[0] == 201
