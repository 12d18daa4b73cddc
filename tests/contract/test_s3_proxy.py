"""A worker's large blobs on their way to S3 and back while the network and S3 misbehave: whole, or not there."""

from __future__ import annotations

import random
import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.digests import digest_bytes, digest_file
from pt2hub.errors import DigestMismatch, StorageUnavailable
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.s3 import S3Storage
from pt2hub.server.blobs.s3 import client as clients
from support.proxy import CONFLICT, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.s3 import S3Server

PART = 5 << 20
MIDDLE = PART // 2
LARGE = random.Random(5).randbytes(2 * PART + 1000)
KEY = StorageKey.blob(digest_bytes(LARGE))
SECOND = "PUT .*partNumber=2"
GET = "^GET "
COMPLETE = "^POST [^ ]*uploadId="


class Far:
    """A storage behind the proxy, and a look at the bucket past it."""

    def __init__(self, proxy: Proxy, server: S3Server) -> None:
        self.proxy = proxy
        self.prefix = secrets.token_hex(8)
        self.storage = S3Storage(server.bucket, self.prefix, part_bytes=PART)
        self._server = server

    def stored(self) -> list[int]:
        """Sizes of what lies in the bucket."""
        found = self._server.client().list_objects_v2(Bucket=self._server.bucket, Prefix=f"{self.prefix}/")
        return [item["Size"] for item in found.get("Contents", ())]

    def unfinished(self) -> list[Any]:
        """Uploads that were begun and never ended: they are paid for."""
        found = self._server.client().list_multipart_uploads(Bucket=self._server.bucket)
        return [item for item in found.get("Uploads", ()) if item["Key"].startswith(self.prefix)]


@pytest.fixture
def far(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    with Proxy(s3_server.endpoint) as proxy:
        # Three tries instead of eight: what lasts is to end soon.
        settings = {"AWS_ENDPOINT_URL_S3": proxy.url, "AWS_MAX_ATTEMPTS": "3"}
        for name, value in (s3_server.environ() | settings).items():
            monkeypatch.setenv(name, value)
        yield Far(proxy, s3_server)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    return path


PASSING: dict[str, dict[str, Any]] = {
    "reset": {"do": "reset", "on": SECOND, "times": 1, "after": MIDDLE},
    "truncate": {"do": "truncate", "on": SECOND, "times": 1, "after": MIDDLE},
    "no answer": {"do": "reset", "on": SECOND, "times": 1, "down": True},
    "SlowDown": {"do": "answer", "on": SECOND, "times": 2},
    "SlowDown at the end": {"do": "answer", "on": COMPLETE, "times": 2},
    "conflict": {"do": "answer", "on": COMPLETE, "times": 2, "status": 409, "body": CONFLICT},
    "slow": {"do": "slow", "on": SECOND, "after": MIDDLE, "rate": 8 << 20},
    "late": {"do": "delay", "on": SECOND, "after": MIDDLE, "seconds": 0.3},
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_endured_and_the_blob_is_stored_whole(far: Far, large: Path, name: str) -> None:
    fault = far.proxy.fault(**PASSING[name])
    assert far.storage.write_file(KEY, large) == len(LARGE)
    assert fault.hit >= 1, "or this tests nothing"
    assert far.stored() == [len(LARGE)]
    assert far.unfinished() == []
    assert b"".join(far.storage.read(KEY)) == LARGE


LASTING: dict[str, dict[str, Any]] = {
    "reset": {"do": "reset", "on": SECOND, "after": MIDDLE},
    "truncate": {"do": "truncate", "on": SECOND, "after": MIDDLE},
    "SlowDown": {"do": "answer", "on": SECOND},
    "flip": {"do": "flip", "on": SECOND, "after": MIDDLE},
    "refused at the end": {"do": "answer", "on": COMPLETE},
}


@pytest.mark.parametrize("name", LASTING)
def test_what_lasts_is_an_error_that_leaves_nothing_and_the_next_try_succeeds(
    far: Far, large: Path, name: str
) -> None:
    fault = far.proxy.fault(**LASTING[name])
    with pytest.raises(StorageUnavailable) as caught:
        far.storage.write_file(KEY, large)
    assert fault.hit >= 1
    assert caught.value.hint
    assert "X-Amz-Signature" not in str(caught.value)
    assert (far.stored(), far.unfinished(), far.storage.size(KEY)) == ([], [], None)
    far.proxy.faults.clear()
    assert far.storage.write_file(KEY, large) == len(LARGE)
    assert far.stored() == [len(LARGE)]


def test_nobody_there_is_an_error_and_the_same_storage_works_when_s3_is_back(far: Far, large: Path) -> None:
    assert far.storage.size(KEY) is None
    with far.proxy.refusing(), pytest.raises(StorageUnavailable, match="EndpointConnectionError"):
        far.storage.write_file(KEY, large)
    assert far.storage.write_file(KEY, large) == len(LARGE)


def test_a_server_that_takes_questions_and_never_answers_holds_nobody_for_minutes(
    far: Far, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = clients.connect(asking=True).meta.config
    assert (asks.connect_timeout, asks.read_timeout) == (3, 10)
    far.storage.write_file(KEY, large)
    monkeypatch.setattr(clients, "ASKING_SECONDS", 0.2)
    hasty = S3Storage(far.storage._bucket.name, far.prefix)
    silence = far.proxy.fault("delay", "^(HEAD|GET [^ ]*list-type=)", seconds=600)
    for ask in (lambda: hasty.size(KEY), lambda: list(hasty.keys("blobs"))):
        silence.hit, began = 0, time.monotonic()
        with pytest.raises(StorageUnavailable, match="ReadTimeoutError") as caught:
            ask()
        assert caught.value.hint
        assert silence.hit == 3, "as often as AWS_MAX_ATTEMPTS says"
        assert time.monotonic() - began < 10
    assert b"".join(hasty.read(KEY)) == LARGE, "bytes may take their time"
    far.proxy.faults.clear()
    assert hasty.size(KEY) == len(LARGE)


@pytest.mark.parametrize(
    ("fault", "refusal"),
    [
        ({"do": "reset"}, StorageUnavailable),
        ({"do": "truncate"}, StorageUnavailable),
        ({"do": "answer"}, StorageUnavailable),
        ({"do": "flip", "after": MIDDLE, "times": 1}, DigestMismatch),
    ],
    ids=["reset", "truncate", "SlowDown", "flip"],
)
def test_a_download_that_fails_leaves_no_file_and_the_next_one_succeeds(
    far: Far, large: Path, tmp_path: Path, fault: dict[str, Any], refusal: type[Exception]
) -> None:
    far.storage.write_file(KEY, large)
    target = tmp_path / "here" / "blob"
    target.parent.mkdir()
    befell = far.proxy.fault(on=GET, **({"down": fault["do"] != "answer"} | fault))
    with pytest.raises(refusal):
        far.storage.fetch(KEY, target)
    assert befell.hit >= 1
    assert list(target.parent.iterdir()) == []
    far.proxy.faults.clear()
    far.storage.fetch(KEY, target)
    assert digest_file(target) == KEY.digest


@pytest.mark.parametrize(
    "fault",
    [
        {"do": "reset", "times": 1, "after": MIDDLE, "down": True, "seconds": 0.3},
        {"do": "truncate", "after": MIDDLE, "down": True},  # each time, and each time more is there
        {"do": "answer", "times": 2},
        {"do": "slow", "after": MIDDLE, "down": True, "rate": 8 << 20},
    ],
    ids=["reset", "truncate", "SlowDown", "slow"],
)
def test_a_download_goes_on_to_its_end(far: Far, large: Path, tmp_path: Path, fault: dict[str, Any]) -> None:
    far.storage.write_file(KEY, large)
    befell = far.proxy.fault(on=GET, **fault)
    far.storage.fetch(KEY, tmp_path / "blob")
    assert befell.hit >= 1
    assert digest_file(tmp_path / "blob") == KEY.digest
