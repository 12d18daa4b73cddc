"""Clients that reach the storage by themselves: S3 by a real server, and by moto as far as moto checks anything."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import urllib3
from moto.server import ThreadedMotoServer

from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import DigestMismatch, NotFound, UploadIncomplete
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.open import open_storage
from pt2hub.server.blobs.ports import PresignedRequest, PresignedTransfers
from pt2hub.server.blobs.s3 import S3Storage
from pt2hub.server.blobs.s3 import pending_uploads as copying
from support.s3 import s3_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from types_boto3_s3 import S3Client  # noqa: TC004  # stubs alone: nothing evaluates the annotation

    from support.s3 import S3Server

DATA = bytes(range(256)) * 40
PART = 5 << 20
"""The least that S3 takes."""
LARGE = secrets.token_bytes(PART) + b"tail"
SECONDS = 60.0


@dataclass(frozen=True)
class Subject:
    """A storage whose clients are the tests.

    Attributes:
        storage: The storage.
        client: A client past it.
        bucket: Its bucket.
        prefix: And the folder in it.
    """

    storage: S3Storage
    client: S3Client
    bucket: str
    prefix: str

    def names(self, folder: str) -> list[str]:
        """What lies in a folder, and uploads that were begun."""
        start = f"{self.prefix}/{folder}"
        objects = self.client.list_objects_v2(Bucket=self.bucket, Prefix=start).get("Contents", [])
        uploads = self.client.list_multipart_uploads(Bucket=self.bucket, Prefix=start).get("Uploads", [])
        return [item["Key"].removeprefix(f"{self.prefix}/") for item in (*objects, *uploads)]


@pytest.fixture(scope="module")
def moto_server() -> Iterator[S3Client]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = s3_client(f"http://{host}:{port}")
    client.create_bucket(Bucket="artifacts")
    yield client
    server.stop()


@pytest.fixture
def strict(s3_server: S3Server) -> Subject:
    """On a server that checks everything."""
    return _subject(s3_server.client(), s3_server.bucket)


@pytest.fixture(params=["moto", "seaweedfs"])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "moto":
        return _subject(request.getfixturevalue("moto_server"), "artifacts")
    made: Subject = request.getfixturevalue("strict")
    return made


def _subject(client: S3Client, bucket: str) -> Subject:
    prefix = secrets.token_hex(8)
    return Subject(S3Storage(bucket, prefix, client=client, part_bytes=PART), client, bucket, prefix)


def blob(data: bytes) -> StorageKey:
    return StorageKey.blob(digest_bytes(data))


def sent(request: PresignedRequest, body: bytes = b"", **changes: str | None) -> urllib3.BaseHTTPResponse:
    """The answer to a signed request; `changes` are to its headers, None leaves one out."""
    headers = request.headers | {name.replace("_", "-"): value for name, value in changes.items() if value}
    for name, value in changes.items():
        if value is None:
            del headers[name.replace("_", "-")]
    with urllib3.PoolManager(retries=False) as pool:
        return pool.request(request.method, request.url, body=body or None, headers=headers)


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def in_parts(subject: Subject, upload: str, data: bytes) -> tuple[str, list[str]]:
    """Sends bytes as a client does; the upload's id at S3, and the parts' names."""
    multipart = subject.storage.begin_parts(upload)
    etags = []
    for number, start in enumerate(range(0, max(1, len(data)), PART), start=1):
        part = data[start : start + PART]
        request = subject.storage.sign_part(
            upload, multipart, number, size=len(part), md5=md5(part), seconds=SECONDS
        )
        answer = sent(request, part)
        assert answer.status == 200
        etags.append(answer.headers["ETag"])
    return multipart, etags


def arrived(subject: Subject, upload: str, data: bytes) -> str:
    """An upload whose parts were put together."""
    multipart, etags = in_parts(subject, upload, data)
    assert subject.storage.finish_parts(upload, multipart, etags) == len(data)
    return multipart


def test_a_storage_in_s3_is_one_that_clients_reach(subject: Subject) -> None:
    assert isinstance(subject.storage, PresignedTransfers)


def test_the_address_of_a_request_is_not_in_its_text(strict: Subject) -> None:
    request = strict.storage.sign_write(blob(DATA), len(DATA), seconds=SECONDS)
    assert "X-Amz-Signature" in request.url
    assert "X-Amz-Signature" not in repr(request)


def test_the_right_bytes_are_taken_once(subject: Subject) -> None:
    request = subject.storage.sign_write(blob(DATA), len(DATA), seconds=SECONDS)
    assert sent(request, DATA).status == 200
    assert b"".join(subject.storage.read(blob(DATA))) == DATA
    assert sent(request, DATA).status == 412
    stored = subject.client.head_object(Bucket=subject.bucket, Key=f"{subject.prefix}/{blob(DATA).path}")
    assert (stored["ContentType"], stored["CacheControl"]) == (
        blob(DATA).content_type,
        blob(DATA).cache_control,
    )


def test_an_empty_object_is_taken(strict: Subject) -> None:
    assert sent(strict.storage.sign_write(blob(b""), 0, seconds=SECONDS)).status == 200
    assert strict.storage.size(blob(b"")) == 0


def test_a_generation_is_written_where_it_belongs(subject: Subject) -> None:
    request = subject.storage.sign_write(blob(DATA).at(2), len(DATA), seconds=SECONDS)
    assert sent(request, DATA).status == 200
    assert list(subject.storage.keys("blobs")) == [blob(DATA).at(2)]


@pytest.mark.parametrize(
    ("body", "changes", "status"),
    [
        (b"x" * len(DATA), {}, 400),
        (b"x" * len(DATA), {"x_amz_checksum_sha256": sha256(b"x" * len(DATA))}, 403),
        (DATA, {"x_amz_checksum_sha256": None}, 403),
        (DATA + b"x", {"Content_Length": str(len(DATA) + 1)}, 403),
        (DATA[:-1], {"Content_Length": str(len(DATA) - 1)}, 403),
        (DATA, {"If_None_Match": None}, 403),
        (DATA, {"Content_Type": "text/html"}, 403),
        (DATA, {"Cache_Control": "no-store"}, 403),
    ],
    ids=[
        "wrong body",
        "other checksum",
        "no checksum",
        "longer",
        "shorter",
        "no condition",
        "other type",
        "other caching",
    ],
)
def test_anything_but_the_signed_bytes_is_refused(
    strict: Subject, body: bytes, changes: dict[str, str | None], status: int
) -> None:
    request = strict.storage.sign_write(blob(DATA), len(DATA), seconds=SECONDS)
    assert sent(request, body, **changes).status == status
    assert strict.storage.size(blob(DATA)) is None
    assert sent(request, DATA).status == 200


def test_requests_expire(strict: Subject) -> None:
    strict.storage.write(blob(b"stored"), [b"stored"])
    write = strict.storage.sign_write(blob(DATA), len(DATA), seconds=1)
    read = strict.storage.sign_read(blob(b"stored"), seconds=1)
    assert sent(read).status == 200
    time.sleep(2.1)  # S3 counts whole seconds
    assert (sent(write, DATA).status, sent(read).status) == (403, 403)


def test_bytes_and_ranges_of_them_are_read(subject: Subject) -> None:
    subject.storage.write(blob(DATA), [DATA])
    request = subject.storage.sign_read(blob(DATA), seconds=SECONDS)
    assert (request.method, sent(request).data) == ("GET", DATA)
    part = sent(request, Range="bytes=5-8")
    assert (part.status, part.data) == (206, DATA[5:9])


def test_a_later_generation_is_read_by_whoever_names_none(subject: Subject) -> None:
    subject.storage.write(blob(DATA).at(4), [DATA])
    assert sent(subject.storage.sign_read(blob(DATA), seconds=SECONDS)).data == DATA


def test_what_is_not_stored_is_not_signed(subject: Subject) -> None:
    with pytest.raises(NotFound) as caught:
        subject.storage.sign_read(blob(DATA), seconds=SECONDS)
    assert caught.value.where == blob(DATA).digest


def test_a_part_of_another_digest_or_size_is_refused(strict: Subject) -> None:
    multipart = strict.storage.begin_parts("u1")
    request = strict.storage.sign_part("u1", multipart, 1, size=5, md5=md5(b"hello"), seconds=SECONDS)
    assert sent(request, b"jello").status == 400
    assert sent(request, b"jello", Content_MD5=md5(b"jello")).status == 403
    assert sent(request, b"hello!", Content_Length="6").status == 403
    assert sent(request, b"hello").status == 200


@pytest.mark.parametrize("data", [b"", DATA, LARGE], ids=["empty", "one part", "two parts"])
def test_what_came_in_parts_counts_only_when_it_was_hashed_and_admitted(
    subject: Subject, data: bytes
) -> None:
    key, storage = blob(data).at(3), subject.storage
    multipart = arrived(subject, "u-1", data)
    assert list(storage.keys("blobs")) == []
    told: list[int] = []
    assert storage.hash_parts("u-1", told.append) == key.digest
    assert told == sorted(told)
    assert told[-1:] == ([len(data)] if data else [])
    storage.admit("u-1", key, len(data))
    assert b"".join(storage.read(key)) == data
    assert list(storage.keys("blobs")) == [key]
    stored = subject.client.head_object(Bucket=subject.bucket, Key=f"{subject.prefix}/{key.path}")
    assert stored["CacheControl"] == key.cache_control
    storage.discard("u-1", multipart)
    assert subject.names("incoming/") == []


def test_other_bytes_than_announced_show_in_the_hash(subject: Subject) -> None:
    arrived(subject, "u1", b"other")
    assert subject.storage.hash_parts("u1", lambda _: None) == digest_bytes(b"other")


def test_an_error_of_who_listens_ends_the_hashing(subject: Subject) -> None:
    def stop(_: int) -> None:
        raise ConnectionResetError

    arrived(subject, "u1", DATA)
    with pytest.raises(ConnectionResetError):
        subject.storage.hash_parts("u1", stop)


def test_parts_are_put_together_again_without_harm(subject: Subject) -> None:
    multipart, etags = in_parts(subject, "u1", LARGE)
    for _ in range(3):
        assert subject.storage.finish_parts("u1", multipart, etags) == len(LARGE)
    assert subject.storage.hash_parts("u1", lambda _: None) == digest_bytes(LARGE)


@pytest.mark.parametrize("how", ["no part", "a missing part", "another part"])
def test_parts_that_are_not_there_are_not_put_together(subject: Subject, how: str) -> None:
    multipart, etags = in_parts(subject, "u1", DATA)
    named = {
        "no part": [],
        "a missing part": [*etags, '"0123456789abcdef0123456789abcdef"'],
        "another part": ['"0123456789abcdef0123456789abcdef"'],
    }
    with pytest.raises(UploadIncomplete) as caught:
        subject.storage.finish_parts("u1", multipart, named[how])
    assert caught.value.where == "u1"
    assert multipart not in str(caught.value)


def test_an_upload_that_was_discarded_is_not_put_together(strict: Subject) -> None:
    multipart, etags = in_parts(strict, "u1", DATA)
    strict.storage.discard("u1", multipart)
    with pytest.raises(UploadIncomplete):
        strict.storage.finish_parts("u1", multipart, etags)


def test_what_is_gone_is_neither_hashed_nor_admitted(subject: Subject) -> None:
    with pytest.raises(UploadIncomplete):
        subject.storage.hash_parts("u1", lambda _: None)
    with pytest.raises(UploadIncomplete):
        subject.storage.admit("u1", blob(DATA), len(DATA))


def test_what_exists_stays_when_the_same_is_admitted(subject: Subject) -> None:
    planted = DATA[:-1] + b"x"  # shows whether it is overwritten
    subject.client.put_object(Bucket=subject.bucket, Key=f"{subject.prefix}/{blob(DATA).path}", Body=planted)
    arrived(subject, "u1", DATA)
    subject.storage.admit("u1", blob(DATA), len(DATA))
    assert b"".join(subject.storage.read(blob(DATA))) == planted
    assert subject.names("blobs/") == [blob(DATA).path]


def test_damage_that_shows_in_the_size_is_reported(subject: Subject) -> None:
    subject.storage.write(blob(b"stored"), [b"stored"])
    arrived(subject, "u1", DATA)
    with pytest.raises(DigestMismatch, match="6 bytes"):
        subject.storage.admit("u1", blob(b"stored"), len(DATA))
    with pytest.raises(DigestMismatch, match="announced"):
        subject.storage.admit("u1", blob(DATA), 7)
    assert subject.storage.size(blob(DATA)) is None


def test_large_objects_are_copied_in_pieces(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "COPIED_BYTES", PART)
    data = LARGE + LARGE
    arrived(subject, "u1", data)
    subject.storage.admit("u1", blob(data), len(data))
    assert b"".join(subject.storage.read(blob(data))) == data
    stored = subject.client.head_object(Bucket=subject.bucket, Key=f"{subject.prefix}/{blob(data).path}")
    assert stored["ETag"].endswith('-3"')


def test_racing_admissions_all_succeed(subject: Subject) -> None:
    uploads = ("u1", "u2", "u3", "u4")
    for upload in uploads:
        arrived(subject, upload, DATA)
    together = threading.Barrier(len(uploads))

    def admit(upload: str) -> None:
        together.wait(10)
        subject.storage.admit(upload, blob(DATA), len(DATA))

    with ThreadPoolExecutor(len(uploads)) as pool:
        list(pool.map(admit, uploads))
    assert b"".join(subject.storage.read(blob(DATA))) == DATA
    assert subject.names("blobs/") == [blob(DATA).path]


@pytest.mark.parametrize("finished", [False, True])
def test_discarding_leaves_nothing_and_may_be_done_again(subject: Subject, finished: bool) -> None:
    multipart, etags = in_parts(subject, "u1", LARGE)
    if finished:
        subject.storage.finish_parts("u1", multipart, etags)
    for named in (multipart, multipart, None):
        subject.storage.discard("u1", named)
        assert subject.names("incoming/") == []


def test_what_clients_left_is_swept_when_it_is_old_enough(strict: Subject) -> None:
    arrived(strict, "u1", DATA)
    in_parts(strict, "u2", DATA)
    strict.storage.write(blob(b"stored"), [b"stored"])
    assert strict.storage.sweep(3600) == 0
    assert strict.names("incoming/") == ["incoming/u1", "incoming/u2"]
    assert strict.storage.sweep(0) == 2
    assert strict.names("") == [blob(b"stored").path]


def test_a_sweep_keeps_to_its_own_folder(s3_server: S3Server, strict: Subject) -> None:
    arrived(strict, "u1", DATA)
    in_parts(strict, "u2", DATA)
    _subject(s3_server.client(), s3_server.bucket).storage.sweep(0)
    assert strict.names("incoming/") == ["incoming/u1", "incoming/u2"]


def test_a_check_tells_whether_digests_are_compared(subject: Subject, request: pytest.FixtureRequest) -> None:
    assert subject.storage.single_bytes == 0, "what was not tried out is not relied on"
    subject.storage.check()
    compares = "seaweedfs" in request.node.callspec.id  # moto takes any digest
    assert (subject.storage.single_bytes >= PART) == compares
    assert compares or subject.storage.single_bytes == 0


def test_addresses_name_the_endpoint_that_clients_reach(s3_url: str, s3_server: S3Server) -> None:
    public = s3_server.endpoint.replace("127.0.0.1", "localhost")
    storage = open_storage(s3_url, public)
    assert isinstance(storage, S3Storage)
    write = storage.sign_write(blob(DATA), len(DATA), seconds=SECONDS)
    assert sent(write, DATA).status == 200
    read = storage.sign_read(blob(DATA), seconds=SECONDS)
    multipart = storage.begin_parts("u1")
    part = storage.sign_part("u1", multipart, 1, size=1, md5=md5(b"x"), seconds=SECONDS)
    for request in (write, read, part):
        assert request.url.startswith(f"{public}/")
    assert (sent(read).data, sent(part, b"x").status) == (DATA, 200)


def test_numbers_of_parts_go_as_far_as_s3_goes(strict: Subject) -> None:
    multipart = strict.storage.begin_parts("u1")
    for number in (1, 10_000):
        request = strict.storage.sign_part("u1", multipart, number, size=1, md5=md5(b"x"), seconds=SECONDS)
        assert sent(request, b"x").status == 200
