from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import urllib3

from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.tokens import SERVER, Actor
from pt2hub.errors import (
    Conflict,
    DigestMismatch,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    StorageFull,
    StorageUnavailable,
    TooLarge,
    UploadIncomplete,
)
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.blobs.s3 import S3Storage
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.blobs.uploads import StoredUpload, UploadStore
from pt2hub.server.services.blobs.blob_writes import BlobService
from pt2hub.server.services.blobs.uploads import UploadService
from support.s3 import S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pt2hub.wire.uploads import UploadRequest, UploadView

PART = 5 << 20
LIMIT = 1 << 30
LARGE = secrets.token_bytes(PART + 1234)
SMALL = b"small"


class Slow(S3Storage):
    """The storage, with something done before it hashes."""

    def __init__(self, server: S3Server, prefix: str) -> None:
        super().__init__(server.bucket, prefix, part_bytes=PART)
        self.single_bytes = 1 << 20
        self.before_hash: Callable[[], object] = lambda: None
        self.hashed = 0

    def hash_parts(self, upload: str, on_bytes: Callable[[int], None]) -> Digest:
        """As the storage; told before."""
        self.hashed += 1
        self.before_hash()
        return super().hash_parts(upload, on_bytes)


@dataclass
class Bench:
    """Upload services over one database and one bucket, as in several processes."""

    url: str
    storage: Slow
    sessions: engines.Sessions
    server: S3Server
    prefix: str
    started: list[UploadService] = field(default_factory=list)
    pool: urllib3.PoolManager = field(default_factory=urllib3.PoolManager)

    def process(self) -> UploadService:
        """The service of one more process."""
        blobs = BlobService(self.sessions, self.storage)
        self.started.append(UploadService(self.sessions, blobs, self.storage, limit=LIMIT))
        return self.started[-1]

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def send(self, request: UploadRequest | None, data: bytes) -> urllib3.BaseHTTPResponse:
        """Does what a client is told to."""
        assert request is not None
        return self.pool.request(request.method, request.url, body=data, headers=request.headers)

    def send_parts(self, uploads: UploadService, view: UploadView, data: bytes = LARGE) -> list[str]:
        """Sends every part; returns what the storage answered."""
        assert view.id
        assert view.part_bytes
        parts = [data[at : at + view.part_bytes] for at in range(0, view.size, view.part_bytes)]
        wanted = [(number, md5(part)) for number, part in enumerate(parts, 1)]
        answers = [
            self.send(signed.request, part)
            for signed, part in zip(uploads.sign_parts(view.id, wanted).parts, parts, strict=True)
        ]
        assert {answer.status for answer in answers} == {200}
        return [answer.headers["ETag"] for answer in answers]

    def sent(self, uploads: UploadService) -> tuple[str, list[str]]:
        """A large upload whose parts are all sent."""
        view = uploads.begin(digest_bytes(LARGE), len(LARGE), by=Actor("alice"))
        assert view.id
        return view.id, self.send_parts(uploads, view)

    def holds(self, data: bytes) -> bool:
        """Whether bytes are stored, and noted as such."""
        key = StorageKey.blob(digest_bytes(data))
        if self.storage.size(key) is None:
            return False
        assert b"".join(self.storage.read(key)) == data
        return self.sql("SELECT state, size FROM blobs WHERE digest = %s", key.digest) == [
            ("stored", len(data))
        ]

    def left(self) -> list[str]:
        """What lies under `incoming/`, whole or in parts."""
        client, bucket, prefix = self.server.client(), self.server.bucket, f"{self.prefix}/incoming/"
        objects = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
        parts = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", [])
        return [item["Key"] for item in objects] + [item["Key"] for item in parts]


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def ended(uploads: UploadService, upload_id: str) -> UploadView:
    """The upload once its check is over."""
    until = time.monotonic() + 30
    while (view := uploads.view(upload_id, by=SERVER)).state == "checking":
        assert time.monotonic() < until
        time.sleep(0.05)
    return view


@pytest.fixture
def bench(migrated_url: str, s3_server: S3Server, s3_url: str) -> Iterator[Bench]:
    engine = engines.create(migrated_url)
    prefix = s3_url.rpartition("/")[2]
    found = Bench(migrated_url, Slow(s3_server, prefix), engines.Sessions(engine), s3_server, prefix)
    yield found
    for service in found.started:
        service.close()
    found.pool.clear()
    engine.dispose()


@pytest.fixture
def uploads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> UploadService:
    # On a busy machine a check outlasts the usual wait, and the answer would be `checking`.
    monkeypatch.setattr("pt2hub.server.services.blobs.uploads._COMPLETE_WAIT_S", 30.0)
    return bench.process()


def test_a_small_upload_is_one_request_and_then_stored(bench: Bench, uploads: UploadService) -> None:
    view = uploads.begin(digest_bytes(SMALL), len(SMALL), by=Actor("alice"))
    assert (view.state, view.part_bytes, view.error) == ("open", None, None)
    assert view.id
    assert view.expires_at
    assert "X-Amz" not in repr(view)
    assert bench.send(view.request, SMALL).status == 200
    after = uploads.complete(view.id, [], by=SERVER)
    assert (after.state, after.id, after.request) == ("stored", view.id, None)
    assert bench.holds(SMALL)
    assert bench.sql("SELECT holder FROM blob_leases WHERE pending_until > now()") == [("api",)]
    assert uploads.complete(view.id, [], by=SERVER) == after
    again = uploads.begin(digest_bytes(SMALL), len(SMALL), by=Actor("bob"))
    assert (again.state, again.id, again.request) == ("stored", None, None)
    assert bench.sql("SELECT state, holder FROM uploads") == [("stored", "alice")]


def test_an_upload_is_not_complete_before_its_bytes_are_there(bench: Bench, uploads: UploadService) -> None:
    view = uploads.begin(digest_bytes(SMALL), len(SMALL), by=Actor("alice"))
    assert view.id
    assert bench.send(view.request, b"other").status >= 400
    with pytest.raises(UploadIncomplete) as caught:
        uploads.complete(view.id, [], by=SERVER)
    assert caught.value.hint
    anew = uploads.view(view.id, by=SERVER)
    assert anew.state == "open"
    bench.send(anew.request, SMALL)
    assert (
        uploads.view(view.id, by=SERVER).state == "stored"
    )  # whoever looks is told, also without saying that it is complete


def test_bytes_that_were_sent_by_a_client_that_died_need_not_be_sent_again(
    bench: Bench, uploads: UploadService
) -> None:
    bench.send(uploads.begin(digest_bytes(SMALL), len(SMALL), by=Actor("alice")).request, SMALL)
    assert uploads.begin(digest_bytes(SMALL), len(SMALL), by=Actor("bob")).state == "stored"
    assert bench.holds(SMALL)
    assert bench.sql("SELECT principal, action FROM audit_log ORDER BY id") == [
        ("alice", "upload.begin"),
        ("bob", "blob.upload"),
    ]


def test_a_large_upload_goes_in_parts_and_is_hashed_before_it_counts(
    bench: Bench, uploads: UploadService
) -> None:
    view = uploads.begin(digest_bytes(LARGE), len(LARGE), by=Actor("alice"))
    assert (view.state, view.request, view.part_bytes) == ("open", None, PART)
    assert view.id
    etags = bench.send_parts(uploads, view)
    assert not bench.holds(LARGE)
    after = uploads.complete(view.id, etags, by=Actor("bob"))
    assert (after.state, after.checked_bytes, after.error) == ("stored", len(LARGE), None)
    assert bench.holds(LARGE)
    assert bench.left() == []
    assert uploads.complete(view.id, etags, by=SERVER).state == "stored"
    entries = bench.sql("SELECT principal, action, change ->> 'size' FROM audit_log ORDER BY id")
    assert entries == [  # the thread that hashed the parts did it for who completed the upload
        ("alice", "upload.begin", str(len(LARGE))),
        ("bob", "upload.complete", str(len(LARGE))),
    ]


@pytest.mark.parametrize("size", [len(LARGE), len(LARGE) + 100])
def test_other_bytes_than_announced_fail_and_leave_nothing(
    bench: Bench, uploads: UploadService, size: int
) -> None:
    view = uploads.begin(digest_bytes(LARGE), size, by=Actor("alice"))
    assert view.id
    etags = bench.send_parts(uploads, view, bytes(size))
    after = uploads.complete(view.id, etags, by=SERVER)
    assert after.state == "failed"
    assert after.error is not None
    assert after.error["code"] == DigestMismatch.code
    assert after.error["hint"]
    assert bench.left() == []
    assert bench.storage.size(StorageKey.blob(digest_bytes(LARGE))) is None
    upload_id, etags = bench.sent(uploads)
    assert uploads.complete(upload_id, etags, by=SERVER).state == "stored"


def test_missing_parts_leave_the_upload_open(bench: Bench, uploads: UploadService) -> None:
    view = uploads.begin(digest_bytes(LARGE), len(LARGE), by=Actor("alice"))
    assert view.id
    with pytest.raises(UploadIncomplete, match="0 ETags given for 2 parts"):
        uploads.complete(view.id, [], by=SERVER)
    with pytest.raises(UploadIncomplete):
        uploads.complete(view.id, ['"0123"', '"4567"'], by=SERVER)
    assert uploads.view(view.id, by=SERVER).state == "open"
    assert uploads.complete(view.id, bench.send_parts(uploads, view), by=SERVER).state == "stored"


def test_a_part_can_be_sent_again_with_a_new_signature(bench: Bench, uploads: UploadService) -> None:
    view = uploads.begin(digest_bytes(LARGE), len(LARGE), by=Actor("alice"))
    assert view.id
    (first,) = uploads.sign_parts(view.id, [(1, md5(bytes(PART)))]).parts
    assert bench.send(first.request, LARGE[:PART]).status >= 400  # other bytes than were signed
    assert bench.send(first.request, bytes(PART)).status == 200
    assert uploads.complete(view.id, bench.send_parts(uploads, view), by=SERVER).state == "stored"


@pytest.mark.parametrize("died", ["before it hashed", "after it admitted", "after it confirmed", "after all"])
def test_a_check_whose_process_died_is_taken_over(bench: Bench, uploads: UploadService, died: str) -> None:
    upload_id, etags = bench.sent(uploads)
    (multipart,) = bench.sql("SELECT multipart FROM uploads")[0]
    bench.storage.finish_parts(upload_id, multipart, etags)
    key = StorageKey.blob(digest_bytes(LARGE)).at(1)
    if died != "before it hashed":
        bench.storage.admit(upload_id, key, len(LARGE))
    if died in ("after it confirmed", "after all"):
        BlobService(bench.sessions, bench.storage).confirm(key, len(LARGE), holder="api")
    if died == "after all":
        bench.storage.discard(upload_id, multipart)
    bench.sql("UPDATE uploads SET state = 'checking', checking_until = now() + interval '1 minute'")
    assert uploads.view(upload_id, by=SERVER).state == "checking"  # another process has it
    bench.sql("UPDATE uploads SET checking_until = now() - interval '1 second'")
    assert ended(bench.process(), upload_id).state == "stored"
    assert bench.holds(LARGE)
    assert bench.storage.hashed == (died == "before it hashed")
    bench.started[-1].close()
    assert bench.left() == []


def test_a_process_that_died_before_it_took_the_check_leaves_an_upload_that_can_be_completed(
    bench: Bench, uploads: UploadService
) -> None:
    upload_id, etags = bench.sent(uploads)
    (multipart,) = bench.sql("SELECT multipart FROM uploads")[0]
    bench.storage.finish_parts(upload_id, multipart, etags)
    assert uploads.complete(upload_id, etags, by=SERVER).state == "stored"


def test_two_who_complete_at_once_have_it_checked_once(bench: Bench, uploads: UploadService) -> None:
    upload_id, etags = bench.sent(uploads)
    other, barrier = bench.process(), threading.Barrier(4)

    def complete(service: UploadService) -> str:
        barrier.wait()
        return service.complete(upload_id, etags, by=SERVER).state

    with ThreadPoolExecutor(4) as pool:
        states = list(pool.map(complete, [uploads, other, uploads, other]))
    assert set(states) <= {"stored", "checking"}
    assert ended(uploads, upload_id).state == "stored"
    assert bench.storage.hashed == 1
    assert bench.holds(LARGE)


def test_a_check_that_takes_long_is_told_and_given_up_with_its_process(
    bench: Bench, uploads: UploadService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pt2hub.server.services.blobs.uploads._COMPLETE_WAIT_S", 0.2)
    monkeypatch.setattr("pt2hub.server.services.blobs.upload_checks._RENEW_INTERVAL_S", 0.0)
    upload_id, etags = bench.sent(uploads)
    gate, told = threading.Event(), threading.Event()

    def wait() -> None:
        told.set()
        gate.wait(30)

    bench.storage.before_hash = wait
    assert uploads.complete(upload_id, etags, by=SERVER).state == "checking"
    assert told.wait(10)
    closing = threading.Thread(target=uploads.close)
    closing.start()
    while not uploads._checker._closed:  # type: ignore[union-attr]  # there is one
        time.sleep(0.01)
    gate.set()
    closing.join(10)
    assert not closing.is_alive()
    other = bench.process()
    assert ended(other, upload_id).state == "stored"
    assert bench.storage.hashed == 2


def test_a_process_that_was_frozen_through_its_check_changes_nothing_any_more(
    bench: Bench, uploads: UploadService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pt2hub.server.services.blobs.uploads._COMPLETE_WAIT_S", 0.1)
    upload_id, etags = bench.sent(uploads)
    gate = threading.Event()
    bench.storage.before_hash = lambda: gate.wait(30)
    assert uploads.complete(upload_id, etags, by=SERVER).state == "checking"
    bench.sql("UPDATE uploads SET checking_until = now() - interval '1 second'")
    bench.storage.before_hash = lambda: None
    other = bench.process()
    assert ended(other, upload_id).state == "stored"
    gate.set()
    uploads.close()
    assert other.view(upload_id, by=SERVER).state == "stored"
    assert bench.holds(LARGE)


def test_a_storage_that_is_away_only_delays_the_check(bench: Bench, uploads: UploadService) -> None:
    upload_id, etags = bench.sent(uploads)
    errors = [StorageUnavailable("away"), StorageUnavailable("still away")]

    def fail() -> None:
        if errors:
            raise errors.pop()

    bench.storage.before_hash = fail
    uploads.complete(upload_id, etags, by=SERVER)
    assert ended(uploads, upload_id).state == "stored"
    assert bench.storage.hashed == 3


def test_a_full_storage_ends_the_check_and_is_told(bench: Bench, uploads: UploadService) -> None:
    upload_id, etags = bench.sent(uploads)

    def fill_up() -> None:
        raise StorageFull("no room", hint="Free space.")

    bench.storage.before_hash = fill_up
    view = uploads.complete(upload_id, etags, by=SERVER)
    assert view.error is not None
    assert (view.state, view.error["code"], view.error["hint"]) == ("failed", "storage_full", "Free space.")
    assert (bench.storage.hashed, bench.left()) == (1, [])


def test_a_check_that_fails_for_no_known_reason_ends_with_an_error(
    bench: Bench, uploads: UploadService
) -> None:
    upload_id, etags = bench.sent(uploads)
    bench.storage.before_hash = lambda: 1 / 0
    view = uploads.complete(upload_id, etags, by=SERVER)
    assert view.state == "failed"
    assert view.error is not None
    assert (view.error["code"], "ZeroDivisionError" in view.error["message"]) == ("internal", True)
    assert bench.left() == []


def test_what_somebody_else_stored_meanwhile_need_not_be_sent(bench: Bench, uploads: UploadService) -> None:
    view = uploads.begin(digest_bytes(LARGE), len(LARGE), by=Actor("alice"))
    assert view.id
    key = StorageKey.blob(digest_bytes(LARGE))
    BlobService(bench.sessions, bench.storage).write(key, [LARGE], holder="api")
    assert uploads.complete(view.id, [], by=SERVER).state == "stored"
    assert bench.left() == []


def test_an_upload_that_is_given_up_leaves_nothing(bench: Bench, uploads: UploadService) -> None:
    view = uploads.begin(digest_bytes(LARGE), len(LARGE), by=Actor("alice"))
    assert view.id
    etags = bench.send_parts(uploads, view)
    uploads.cancel(view.id, by=SERVER)
    for use in (uploads.view, uploads.cancel, partial(uploads.complete, etags=etags)):
        with pytest.raises(NotFound):
            use(view.id, by=SERVER)
    assert bench.left() == []


def test_an_upload_whose_time_is_over_is_swept(bench: Bench, uploads: UploadService) -> None:
    gone, _ = bench.sent(uploads)
    stays, etags = bench.sent(uploads)
    bench.sql("UPDATE uploads SET pending_until = now() - interval '1 second' WHERE id = %s", gone)
    with pytest.raises(NotFound, match="has expired"):
        uploads.view(gone, by=SERVER)
    assert len(bench.left()) == 2
    uploads.sweep()
    assert bench.sql("SELECT id FROM uploads") == [(stays,)]
    assert len(bench.left()) == 1
    assert uploads.complete(stays, etags, by=SERVER).state == "stored"


def test_an_upload_that_goes_on_while_it_is_swept_is_kept(
    bench: Bench, uploads: UploadService, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_id, etags = bench.sent(uploads)
    bench.sql("UPDATE uploads SET pending_until = now() - interval '1 second'")
    expired = UploadStore.list_expired

    def prolonged(store: UploadStore, *, limit: int) -> list[StoredUpload]:
        found = expired(store, limit=limit)
        assert [upload.id for upload in found] == [upload_id]
        bench.sql("UPDATE uploads SET pending_until = now() + interval '6 hours'")
        return found

    monkeypatch.setattr(UploadStore, "list_expired", prolonged)
    uploads.sweep()
    assert uploads.complete(upload_id, etags, by=SERVER).state == "stored"


def test_an_upload_that_is_being_checked_is_let_finish(bench: Bench, uploads: UploadService) -> None:
    upload_id, _ = bench.sent(uploads)
    bench.sql(
        "UPDATE uploads SET pending_until = now() - interval '1 second', state = 'checking', "
        "checking_until = now() + interval '1 minute'"
    )
    uploads.sweep()
    assert uploads.view(upload_id, by=SERVER).state == "checking"


def test_a_slow_client_gets_more_time_as_long_as_it_goes_on(bench: Bench, uploads: UploadService) -> None:
    view = uploads.begin(digest_bytes(LARGE), len(LARGE), by=Actor("alice"))
    for table in ("uploads", "blob_leases"):
        bench.sql(f"UPDATE {table} SET pending_until = now() + interval '1 minute'")
    bench.send_parts(uploads, view)
    for table in ("uploads", "blob_leases"):
        assert bench.sql(f"SELECT pending_until > now() + interval '5 hours' FROM {table}") == [(True,)]


def test_parts_that_there_are_not_are_refused(bench: Bench, uploads: UploadService) -> None:
    view = uploads.begin(digest_bytes(LARGE), len(LARGE), by=Actor("alice"))
    assert view.id
    right = md5(LARGE)
    for wanted, where in (([(1, right), (3, right)], "parts[1]"), ([(0, right)], "parts[0]")):
        with pytest.raises(InvalidInput) as caught:
            uploads.sign_parts(view.id, wanted)
        assert (caught.value.where, caught.value.details[0].allowed) == (where, "1 to 2")
    for wrong in ("", "x", "AAAA", right + "\n", "é"):
        with pytest.raises(InvalidInput) as caught:
            uploads.sign_parts(view.id, [(1, wrong)])
        assert caught.value.where == "parts[0].md5"
    with pytest.raises(InvalidInput, match="Too many parts"):
        uploads.sign_parts(view.id, [(1, right)] * 101)
    single = uploads.begin(digest_bytes(SMALL), len(SMALL), by=Actor("alice"))
    assert single.id
    with pytest.raises(Conflict, match="one request"):
        uploads.sign_parts(single.id, [(1, right)])
    uploads.complete(view.id, bench.send_parts(uploads, view), by=SERVER)
    with pytest.raises(Conflict, match="the upload is stored"):
        uploads.sign_parts(view.id, [(1, right)])


def test_what_is_too_large_or_contradicts_what_is_stored_is_refused_at_once(
    bench: Bench, uploads: UploadService
) -> None:
    with pytest.raises(TooLarge) as caught:
        uploads.begin(digest_bytes(LARGE), LIMIT + 1, by=Actor("alice"))
    assert caught.value.context == {"limit": LIMIT}
    key = StorageKey.blob(digest_bytes(SMALL))
    BlobService(bench.sessions, bench.storage).write(key, [SMALL], holder="api")
    with pytest.raises(DigestMismatch, match="5 bytes, not 6"):
        uploads.begin(digest_bytes(SMALL), 6, by=Actor("alice"))
    with pytest.raises(NotFound):
        uploads.view("no such upload", by=SERVER)


def test_a_token_with_very_many_open_uploads_is_stopped_and_others_are_not(
    bench: Bench,
) -> None:
    blobs = BlobService(bench.sessions, bench.storage)
    uploads = UploadService(bench.sessions, blobs, bench.storage, limit=LIMIT, most_open=2)
    views = [uploads.begin(digest_bytes(data), 1, by=Actor("alice")) for data in (b"1", b"2")]
    with pytest.raises(QuotaExceeded, match="The token 'alice' has too many open uploads") as caught:
        uploads.begin(digest_bytes(b"3"), 1, by=Actor("alice"))
    assert caught.value.hint
    assert uploads.begin(digest_bytes(b"3"), 1, by=Actor("bob")).state == "open"
    bench.send(views[0].request, b"1")
    assert uploads.complete(str(views[0].id), [], by=SERVER).state == "stored"
    assert uploads.begin(digest_bytes(b"4"), 1, by=Actor("alice")).state == "open"


def test_no_bytes_at_all_are_uploaded_like_any(bench: Bench, uploads: UploadService) -> None:
    view = uploads.begin(digest_bytes(b""), 0, by=Actor("alice"))
    assert view.id
    assert bench.send(view.request, b"").status == 200
    assert uploads.complete(view.id, [], by=SERVER).state == "stored"
    assert bench.holds(b"")


def test_where_the_server_does_not_check_digests_everything_goes_in_parts(bench: Bench) -> None:
    bench.storage.single_bytes = 0
    uploads = bench.process()
    view = uploads.begin(digest_bytes(SMALL), len(SMALL), by=Actor("alice"))
    assert view.id
    assert view.part_bytes == PART
    assert uploads.complete(view.id, bench.send_parts(uploads, view, SMALL), by=SERVER).state == "stored"
    assert bench.holds(SMALL)


def test_a_storage_that_clients_cannot_reach_is_written_through_the_server(
    bench: Bench, tmp_path: Path
) -> None:
    storage = LocalStorage(tmp_path)
    blobs = BlobService(bench.sessions, storage)
    uploads = UploadService(bench.sessions, blobs, None, limit=LIMIT)
    digest = digest_bytes(SMALL)
    view = uploads.begin(digest, len(SMALL), by=Actor("alice"))
    assert view.id
    assert view.request is not None
    assert (view.request.method, view.request.url) == ("PUT", f"/api/v1/blobs/{digest}")
    with pytest.raises(UploadIncomplete):
        uploads.complete(view.id, [], by=SERVER)
    blobs.write(StorageKey.blob(digest), [SMALL], holder="api")
    assert uploads.complete(view.id, [], by=SERVER).state == "stored"
    assert uploads.begin(digest, len(SMALL), by=Actor("bob")).state == "stored"
    uploads.cancel(view.id, by=SERVER)
    uploads.sweep()
    uploads.close()
