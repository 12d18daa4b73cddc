"""What the S3 adapter does when S3 does not do what was asked."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import DigestMismatch, NotFound, StorageFull, StorageUnavailable
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.opening import open_storage
from pt2hub.server.blobs.s3 import S3Storage
from support.s3 import s3_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from types_boto3_s3 import S3Client

    from support.s3 import S3Server

DATA = b"bytes" * 1000
KEY = StorageKey.blob(digest_bytes(DATA))


class Faulty(ThreadingHTTPServer):
    """Answers requests from a script of (method, status, body, claimed length); notes what was asked."""

    def __init__(self, script: list[tuple[str, int, bytes, int]]) -> None:
        self.script = script
        self.asked: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), Answer)

    def client(self) -> S3Client:
        return s3_client(f"http://127.0.0.1:{self.server_port}")


class Answer(BaseHTTPRequestHandler):
    server: Faulty
    protocol_version = "HTTP/1.1"  # says "100 Continue", which botocore waits for

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        method, status, body, claimed = self.server.script.pop(0)
        self.server.asked.append((self.command, self.headers.get("If-None-Match")))
        self.send_response(status if method == self.command else 500)
        self.send_header("Content-Length", str(claimed))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_DELETE = answer  # noqa: N815  # names of the standard library

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def faulty() -> Iterator[Faulty]:
    server = Faulty([])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def error_of(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode()


def answers(*script: tuple[str, int, bytes]) -> list[tuple[str, int, bytes, int]]:
    return [(method, status, body, len(body)) for method, status, body in script]


HEAD_MISSING = ("HEAD", 404, b"")
BUCKET = ("HEAD", 200, b"")


def test_a_body_that_breaks_off_is_our_error_inside_the_iteration(faulty: Faulty, tmp_path: Path) -> None:
    storage = S3Storage("artifacts", client=faulty.client())
    faulty.script = [("GET", 200, bytes(1 << 20), 3 << 20)] * 2
    pieces = storage.read(KEY)
    assert next(pieces)
    with pytest.raises(StorageUnavailable) as caught:
        list(pieces)
    assert caught.value.where == f"s3://artifacts/{KEY.path}"
    with pytest.raises(StorageUnavailable):
        storage.fetch(KEY, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_create_that_meets_another_one_is_tried_again(faulty: Faulty) -> None:
    conflict = ("PUT", 409, error_of("ConditionalRequestConflict"))
    faulty.script = answers(HEAD_MISSING, BUCKET, conflict, conflict, ("PUT", 200, b""))
    assert S3Storage("artifacts", client=faulty.client()).write(KEY, [DATA]) == len(DATA)
    assert faulty.asked[-3:] == [("PUT", "*")] * 3


def test_a_create_that_meets_others_for_ever_gives_up(faulty: Faulty) -> None:
    conflict = ("PUT", 409, error_of("ConditionalRequestConflict"))
    faulty.script = answers(HEAD_MISSING, BUCKET, *[conflict] * 5)
    with pytest.raises(StorageUnavailable, match="ConditionalRequestConflict"):
        S3Storage("artifacts", client=faulty.client()).write(KEY, [DATA])


@pytest.mark.parametrize(("length", "right"), [(len(DATA), True), (7, False)])
def test_after_already_exists_the_sizes_are_compared(faulty: Faulty, length: int, right: bool) -> None:
    exists = ("PUT", 412, error_of("PreconditionFailed"))
    faulty.script = [*answers(HEAD_MISSING, BUCKET, exists), ("HEAD", 200, b"", length)]
    storage = S3Storage("artifacts", client=faulty.client())
    if right:
        assert storage.write(KEY, [DATA]) == len(DATA)
    else:
        with pytest.raises(DigestMismatch, match="7 bytes"):
            storage.write(KEY, [DATA])


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (503, "SlowDown", "Try again"),
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        (404, "NoSuchBucket", "Create the bucket"),
    ],
)
def test_an_answer_of_s3_is_our_error_with_what_to_do(
    faulty: Faulty, status: int, code: str, hint: str
) -> None:
    storage = S3Storage("artifacts", client=faulty.client())
    faulty.script = answers(*[("GET", status, error_of(code))] * 2)
    for act in (lambda: next(storage.read(KEY)), lambda: next(storage.keys("blobs"))):
        with pytest.raises(StorageUnavailable) as caught:
            act()
        assert caught.value.context == {"s3_code": code}
        assert hint in str(caught.value)


def test_a_server_without_room_is_told_apart(faulty: Faulty) -> None:
    faulty.script = answers(("HEAD", 404, b""), ("HEAD", 200, b""), ("PUT", 507, error_of("StorageFull")))
    with pytest.raises(StorageFull):
        S3Storage("artifacts", client=faulty.client()).write(KEY, [DATA])


def test_a_server_that_is_not_there_is_our_error() -> None:
    with pytest.raises(StorageUnavailable, match="EndpointConnectionError"):
        S3Storage("artifacts", client=s3_client("http://127.0.0.1:1")).size(KEY)


def test_missing_credentials_are_our_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(StorageUnavailable, match="AWS_ACCESS_KEY_ID"):
        open_storage("s3://artifacts/x").size(KEY)


def test_a_missing_bucket_is_our_error_and_not_a_missing_blob() -> None:
    with mock_aws():
        storage = S3Storage("nobucket", client=s3_client(None))
        acts: list[Callable[[], object]] = [lambda: storage.size(KEY), lambda: storage.write(KEY, [DATA])]
        for act in acts:
            with pytest.raises(StorageUnavailable, match="Create the bucket"):
                act()


def test_an_address_opens_a_real_server_by_boto3s_variables(s3_url: str, s3_server: S3Server) -> None:
    storage = open_storage(s3_url)
    assert storage.write(KEY, [DATA]) == len(DATA)
    assert b"".join(storage.read(KEY, 3, 9)) == DATA[3:9]
    assert list(storage.keys("blobs")) == [KEY]
    prefix = s3_url.removeprefix(f"s3://{s3_server.bucket}/")
    stored = s3_server.client().head_object(Bucket=s3_server.bucket, Key=f"{prefix}/{KEY.path}")
    assert stored["CacheControl"] == KEY.cache_control
    with pytest.raises(NotFound):
        next(storage.read(StorageKey.blob(digest_bytes(b""))))
