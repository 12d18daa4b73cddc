"""What the S3 adapter does when S3 does not do what was asked."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import (
    BadConfiguration,
    DigestMismatch,
    NotFound,
    StorageFull,
    StorageUnavailable,
    StorageUnsafe,
)
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.open import open_storage
from pt2hub.server.blobs.s3 import S3Storage
from pt2hub.server.blobs.s3.client import connect
from pt2hub.server.blobs.s3.reader import VAIN_TRIES
from support.s3 import READER, s3_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from email.message import Message
    from pathlib import Path

    from support.s3 import S3Server

DATA = b"bytes" * 1000
KEY = StorageKey.blob(digest_bytes(DATA))
PART = 5 << 20
LARGE = bytes(PART) + b"tail"
LARGE_KEY = StorageKey.blob(digest_bytes(LARGE))
SECRET = "thesecretkey"


class Faulty(ThreadingHTTPServer):
    """Answers requests from a script of (method, status, body, claimed length); notes what was asked."""

    def __init__(self, script: list[tuple[str, int, bytes, int]]) -> None:
        self.script = script
        self.asked: list[tuple[str, Message]] = []
        self.paths: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), Answer)

    def storage(self, *, tries: int = 1, conflict_tries: int = 3) -> S3Storage:
        client = s3_client(f"http://127.0.0.1:{self.server_port}", secret_key=SECRET, tries=tries)
        return S3Storage("artifacts", client=client, part_bytes=PART, conflict_tries=conflict_tries)

    def conditions(self) -> list[tuple[str, str | None]]:
        return [(method, headers.get("If-None-Match")) for method, headers in self.asked]


class Answer(BaseHTTPRequestHandler):
    server: Faulty
    protocol_version = "HTTP/1.1"  # says "100 Continue", which botocore waits for

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        method, status, body, claimed = self.server.script.pop(0)
        self.server.asked.append((self.command, self.headers))
        self.server.paths.append((self.command, self.path))
        self.send_response(status if method == self.command else 418)
        self.send_header("Content-Length", str(claimed))
        self.send_header("ETag", '"etag"')
        self.send_header("Last-Modified", "Sat, 21 Nov 2026 21:00:00 GMT")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer  # noqa: N815  # names of the standard library

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


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def error_of(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode()


def answers(*script: tuple[str, int, bytes]) -> list[tuple[str, int, bytes, int]]:
    return [(method, status, body, len(body)) for method, status, body in script]


HEAD_MISSING = ("HEAD", 404, b"")
CONFLICT = ("PUT", 409, error_of("ConditionalRequestConflict"))
SLOW_DOWN = error_of("SlowDown")
EXISTS = error_of("PreconditionFailed")
STORED = ("PUT", 200, b"")
LISTED = ("GET", 200, b"<ListBucketResult></ListBucketResult>")
MIB = 1 << 20
BEGUN = (
    "POST",
    200,
    b"<InitiateMultipartUploadResult><UploadId>up</UploadId></InitiateMultipartUploadResult>",
)
COMPLETED = ("POST", 200, b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")


def broken(faulty: Faulty, *pieces: tuple[int, int]) -> None:
    """Answers to reading: bytes that come and bytes that were announced, each."""
    faulty.script = [("GET", 206, bytes(came), claimed) for came, claimed in pieces]


def test_a_read_goes_on_where_the_connection_broke_as_long_as_bytes_come(faulty: Faulty) -> None:
    broken(faulty, (2 * MIB, 6 * MIB), (MIB, 4 * MIB), (3 * MIB, 3 * MIB))
    assert b"".join(faulty.storage().read(KEY, 10)) == bytes(6 * MIB)
    assert [(headers["Range"], headers["If-Match"]) for _, headers in faulty.asked] == [
        ("bytes=10-", None),
        (f"bytes={2 * MIB + 10}-", '"etag"'),
        (f"bytes={3 * MIB + 10}-", '"etag"'),
    ]


def test_a_range_that_broke_ends_where_it_was_to_end(faulty: Faulty) -> None:
    broken(faulty, (2 * MIB, 3 * MIB), (MIB, MIB))
    assert b"".join(faulty.storage().read(KEY, 5, 3 * MIB + 5)) == bytes(3 * MIB)
    assert [headers["Range"] for _, headers in faulty.asked] == [
        f"bytes=5-{3 * MIB + 4}",
        f"bytes={2 * MIB + 5}-{3 * MIB + 4}",
    ]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (("GET", 206, b""), "IncompleteReadError"),
        (("GET", 404, error_of("NoSuchKey")), "NoSuchKey"),
        (("GET", 412, EXISTS), "PreconditionFailed"),
    ],
    ids=["nothing comes", "deleted", "replaced"],
)
def test_a_read_that_cannot_go_on_is_our_error_inside_the_iteration(
    faulty: Faulty, tmp_path: Path, end: tuple[str, int, bytes], code: str
) -> None:
    vain = code == "IncompleteReadError"
    ends = VAIN_TRIES * [(*end, 2 * MIB)] if vain else [(*end, len(end[2]))]
    script = [("GET", 200, bytes(MIB), 3 * MIB), *ends]
    storage = faulty.storage()
    faulty.script = [*script, *script]
    pieces = storage.read(KEY)
    assert next(pieces)
    with pytest.raises(StorageUnavailable) as caught:
        list(pieces)
    assert caught.value.where == f"s3://artifacts/{KEY.path}"
    assert caught.value.context == {"s3_code": code}
    with pytest.raises(StorageUnavailable):
        storage.fetch(KEY, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_create_that_meets_another_one_is_tried_again(faulty: Faulty) -> None:
    faulty.script = answers(HEAD_MISSING, CONFLICT, CONFLICT, STORED)
    assert faulty.storage().write(KEY, [DATA]) == len(DATA)
    assert faulty.conditions()[-3:] == [("PUT", "*")] * 3


def test_a_create_that_meets_others_for_ever_gives_up(faulty: Faulty) -> None:
    faulty.script = answers(HEAD_MISSING, *[CONFLICT] * 3)
    with pytest.raises(StorageUnavailable, match=r"ConditionalRequestConflict.*\n.*try again later"):
        faulty.storage().write(KEY, [DATA])
    assert faulty.script == []


@pytest.mark.parametrize(("conflicts", "stored"), [(2, True), (3, False)])
def test_parts_that_are_put_together_while_others_do_the_same_are_tried_again(
    faulty: Faulty, conflicts: int, stored: bool
) -> None:
    conflict = ("POST", 409, error_of("ConditionalRequestConflict"))
    faulty.script = answers(HEAD_MISSING, BEGUN, STORED, STORED, *[conflict] * conflicts)
    faulty.script += answers(COMPLETED if stored else ("DELETE", 204, b""))
    if stored:
        assert faulty.storage().write(LARGE_KEY, [LARGE]) == len(LARGE)
        assert faulty.conditions()[-3:] == [("POST", "*")] * 3
    else:
        with pytest.raises(StorageUnavailable, match="ConditionalRequestConflict"):
            faulty.storage().write(LARGE_KEY, [LARGE])
    assert faulty.script == []


@pytest.mark.parametrize("code", ["SlowDown", "InternalError"])
def test_a_storm_that_passes_is_outlived(faulty: Faulty, code: str) -> None:
    storm = ("PUT", 503 if code == "SlowDown" else 500, error_of(code))
    faulty.script = answers(HEAD_MISSING, storm, storm, STORED)
    assert faulty.storage(tries=3).write(KEY, [DATA]) == len(DATA)
    assert [headers["Content-MD5"] for _, headers in faulty.asked[1:]] == [md5(DATA)] * 3


def test_a_storm_that_does_not_pass_ends_in_our_error(faulty: Faulty) -> None:
    faulty.script = answers(HEAD_MISSING, *[("PUT", 503, SLOW_DOWN)] * 2)
    with pytest.raises(StorageUnavailable, match=r"SlowDown.*\n.*overloaded") as caught:
        faulty.storage(tries=2).write(KEY, [DATA])
    assert caught.value.context == {"s3_code": "SlowDown"}
    assert faulty.script == []


def test_requests_are_tried_often_enough_to_outlive_a_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_MAX_ATTEMPTS", raising=False)
    for variable, tries, questions in ((None, 8, 4), ("2", 2, 2)):
        if variable:
            monkeypatch.setenv("AWS_MAX_ATTEMPTS", variable)
        for asking, often in ((False, tries), (True, questions)):
            config = vars(connect(asking=asking).meta.config)
            assert config["retries"] == {"mode": "standard", "total_max_attempts": often}


@pytest.mark.parametrize(("length", "right"), [(len(DATA), True), (7, False)])
def test_after_already_exists_the_sizes_are_compared(faulty: Faulty, length: int, right: bool) -> None:
    faulty.script = [*answers(HEAD_MISSING, ("PUT", 412, EXISTS)), ("HEAD", 200, b"", length)]
    if right:
        assert faulty.storage().write(KEY, [DATA]) == len(DATA)
    else:
        with pytest.raises(DigestMismatch, match="7 bytes"):
            faulty.storage().write(KEY, [DATA])


@pytest.mark.parametrize(("found", "right"), [(200, True), (404, False)])
def test_an_upload_that_is_gone_when_its_end_is_sent_again_had_succeeded_if_the_object_is_there(
    faulty: Faulty, found: int, right: bool
) -> None:
    lost, gone = ("POST", 500, error_of("InternalError")), ("POST", 404, error_of("NoSuchUpload"))
    faulty.script = [
        *answers(HEAD_MISSING, BEGUN, STORED, STORED, lost, gone, ("DELETE", 404, error_of("NoSuchUpload"))),
        ("HEAD", found, b"", len(LARGE)),
    ]
    if right:
        assert faulty.storage(tries=2).write(LARGE_KEY, [LARGE]) == len(LARGE)
    else:
        with pytest.raises(StorageUnavailable):
            faulty.storage(tries=2).write(LARGE_KEY, [LARGE])
    assert faulty.script == []


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (503, "SlowDown", "overloaded"),
        (500, "InternalError", "Try again"),
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        (403, "AccessDenied", "to list, read, write"),
        (404, "NoSuchBucket", "Create the bucket"),
    ],
)
def test_an_answer_of_s3_is_our_error_with_what_to_do(
    faulty: Faulty, status: int, code: str, hint: str
) -> None:
    storage = faulty.storage()
    faulty.script = answers(*[("GET", status, error_of(code))] * 2)
    for act in (lambda: next(storage.read(KEY)), lambda: next(storage.keys("blobs"))):
        with pytest.raises(StorageUnavailable) as caught:
            act()
        assert caught.value.context == {"s3_code": code}
        assert hint in str(caught.value)


def test_an_answer_that_is_no_xml_is_our_error(faulty: Faulty) -> None:
    faulty.script = answers(("GET", 200, b"<html>It works!"))
    with pytest.raises(StorageUnavailable, match="S3 returned 500"):
        next(faulty.storage().keys("blobs"))


@pytest.mark.parametrize("code", ["SignatureDoesNotMatch", "?X-Amz-Signature=0123&X-Amz-Credential=AKIA"])
def test_no_request_and_no_credential_is_in_an_error(faulty: Faulty, code: str) -> None:
    body = f"<Error><Code>{code.replace('&', '&amp;')}</Code><Message>for {SECRET}</Message>"
    body += (
        f"<StringToSign>AWS4-HMAC-SHA256 {SECRET}</StringToSign><AWSAccessKeyId>key</AWSAccessKeyId></Error>"
    )
    faulty.script = answers(("GET", 403, body.encode()))
    with pytest.raises(StorageUnavailable) as caught:
        next(faulty.storage().read(KEY))
    text = str(caught.value.as_dict())
    for secret in (SECRET, "AWS4-HMAC", "X-Amz", "Authorization", "AKIA"):
        assert secret not in text


FULL = [
    (507, "InsufficientStorage"),
    (507, "XMinioStorageFull"),
    (403, "QuotaExceeded"),
    (400, "XMinioAdminBucketQuotaExceeded"),
]


@pytest.mark.parametrize(("status", "code"), FULL)
def test_a_full_bucket_is_told_apart(faulty: Faulty, status: int, code: str) -> None:
    faulty.script = answers(HEAD_MISSING, ("PUT", status, error_of(code)))
    with pytest.raises(StorageFull, match=rf"{code}.*\n.*quota"):
        faulty.storage().write(KEY, [DATA])


def test_a_bucket_that_fills_up_in_the_middle_of_an_upload_keeps_nothing_of_it(faulty: Faulty) -> None:
    full = ("PUT", 507, error_of("StorageFull"))
    faulty.script = answers(HEAD_MISSING, BEGUN, full, full, ("DELETE", 204, b""))
    with pytest.raises(StorageFull):
        faulty.storage().write(LARGE_KEY, [LARGE])
    assert faulty.asked[-1][0] == "DELETE"


def test_a_server_that_ignores_the_condition_of_a_create_is_refused(faulty: Faulty) -> None:
    faulty.script = answers(LISTED, STORED, STORED)
    with pytest.raises(StorageUnsafe) as caught:
        faulty.storage().check()
    assert caught.value.where == "PT2HUB_STORAGE"
    assert "412" in str(caught.value.hint)
    assert faulty.conditions()[1:] == [("PUT", "*")] * 2


WRONG = ("PUT", 400, error_of("BadDigest"))


@pytest.mark.parametrize("first", [True, False])
def test_a_server_that_minds_the_condition_is_taken(faulty: Faulty, first: bool) -> None:
    exists = ("PUT", 412, EXISTS)
    faulty.script = answers(LISTED, *([STORED, exists] if first else [exists]), WRONG)
    storage = faulty.storage()
    storage.check()
    assert faulty.script == []
    assert storage.single_bytes > 0


def test_from_a_server_that_compares_no_digests_everything_is_hashed_again(faulty: Faulty) -> None:
    faulty.script = answers(LISTED, ("PUT", 412, EXISTS), STORED)
    storage = faulty.storage()
    storage.check()
    assert storage.single_bytes == 0


def test_a_sweep_spares_who_still_sends_parts_however_long_ago_it_began(faulty: Faulty) -> None:
    now, long_ago = datetime.now(UTC).isoformat(), "2026-01-01T00:00:00Z"
    uploads = [
        f"<Upload><Key>incoming/{name}</Key><UploadId>{name}</UploadId><Initiated>{long_ago}</Initiated></Upload>"
        for name in ("slow", "dead", "ended")
    ]
    parts = [
        f"<ListPartsResult><Part><PartNumber>1</PartNumber><LastModified>{time}</LastModified></Part>"
        "</ListPartsResult>"
        for time in (now, long_ago)
    ]
    found = f"<ListMultipartUploadsResult>{''.join(uploads)}</ListMultipartUploadsResult>"
    empty = ("GET", 200, b"<ListMultipartUploadsResult></ListMultipartUploadsResult>")
    faulty.script = answers(
        empty,
        empty,
        ("GET", 200, found.encode()),
        *[("GET", 200, part.encode()) for part in parts],
        ("GET", 404, error_of("NoSuchUpload")),
        ("DELETE", 204, b""),
        LISTED,
    )
    assert faulty.storage().sweep(3600) == 1
    assert faulty.script == []
    assert [path for method, path in faulty.paths if method == "DELETE"] == [
        "/artifacts/incoming/dead?uploadId=dead"
    ]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([("GET", 503, SLOW_DOWN)], StorageUnavailable),
        ([LISTED, ("PUT", 507, error_of("StorageFull"))], StorageFull),
        ([LISTED, ("PUT", 403, error_of("AccessDenied"))], BadConfiguration),
        ([LISTED, *[CONFLICT] * 3], StorageUnavailable),
    ],
    ids=["storm", "full", "no right to write", "conflicts"],
)
def test_a_check_says_what_is_wrong(
    faulty: Faulty, script: list[tuple[str, int, bytes]], error: type[Exception]
) -> None:
    faulty.script = answers(*script)
    with pytest.raises(error):
        faulty.storage().check()


def test_a_bucket_that_is_not_there_is_not_made_and_said_to_be_missing(s3_server: S3Server) -> None:
    with pytest.raises(BadConfiguration, match="Create the bucket") as caught:
        S3Storage("nobucket", client=s3_server.client()).check()
    assert caught.value.where == "PT2HUB_STORAGE"
    assert "s3://nobucket/" in caught.value.message
    buckets = s3_server.client().list_buckets()["Buckets"]
    assert "nobucket" not in [each["Name"] for each in buckets]


def test_credentials_that_may_not_write_read_and_are_told_at_once(s3_server: S3Server) -> None:
    prefix = secrets.token_hex(8)
    S3Storage(s3_server.bucket, prefix, client=s3_server.client()).write(KEY, [DATA])
    storage = S3Storage(s3_server.bucket, prefix, client=s3_server.client(READER), part_bytes=PART)
    assert b"".join(storage.read(KEY)) == DATA
    with pytest.raises(BadConfiguration, match=r"AccessDenied.*\n.*to list, read, write") as caught:
        storage.check()
    assert caught.value.where == "PT2HUB_STORAGE"
    for data in (b"other", LARGE):
        with pytest.raises(StorageUnavailable, match="to list, read, write"):
            storage.write(StorageKey.blob(digest_bytes(data)), [data])


@pytest.mark.parametrize(
    ("key", "secret", "hint"),
    [("stranger", "any", "AWS_ACCESS_KEY_ID"), (READER, "wrong", "AWS_SECRET_ACCESS_KEY")],
)
def test_credentials_that_s3_does_not_know_are_the_settings_fault(
    s3_server: S3Server, key: str, secret: str, hint: str
) -> None:
    storage = S3Storage(s3_server.bucket, client=s3_client(s3_server.endpoint, key, secret))
    with pytest.raises(BadConfiguration, match=hint):
        storage.check()


def test_a_server_that_is_not_there_is_our_error() -> None:
    storage = S3Storage("artifacts", client=s3_client("http://127.0.0.1:1"))
    acts: list[Callable[[], object]] = [lambda: storage.size(KEY), storage.check, lambda: storage.sweep(0)]
    for act in acts:
        with pytest.raises(StorageUnavailable, match="EndpointConnectionError"):
            act()


def test_an_endpoint_without_a_scheme_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "127.0.0.1:9")
    with pytest.raises(BadConfiguration, match=r"127\.0\.0\.1:9") as caught:
        open_storage("s3://artifacts/x")
    assert caught.value.where == "AWS_ENDPOINT_URL_S3"


def test_missing_credentials_are_our_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    storage = open_storage("s3://artifacts/x")
    assert isinstance(storage, S3Storage)
    with pytest.raises(StorageUnavailable, match="AWS_ACCESS_KEY_ID"):
        storage.size(KEY)
    with pytest.raises(StorageUnavailable, match="AWS_ACCESS_KEY_ID"):
        storage.sign_write(KEY, len(DATA), seconds=60)
    with pytest.raises(BadConfiguration, match="AWS_ACCESS_KEY_ID"):
        storage.check()


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
    assert list(storage.keys("blobs")) == [KEY.at(1)]
    prefix = s3_url.removeprefix(f"s3://{s3_server.bucket}/")
    stored = s3_server.client().head_object(Bucket=s3_server.bucket, Key=f"{prefix}/{KEY.path}")
    assert stored["CacheControl"] == KEY.cache_control
    with pytest.raises(NotFound):
        next(storage.read(StorageKey.blob(digest_bytes(b""))))
