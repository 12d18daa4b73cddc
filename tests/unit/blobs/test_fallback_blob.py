"""A blob is read from the bucket as soon as the server is away, by any number of connections at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.blobs.fallback_blob import FallbackBlob
from pt2hub.errors import (
    BadConfiguration,
    DatabaseUnavailable,
    NotFound,
    Pt2hubError,
    ServerUnreachable,
    StorageUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Generator

DATA = bytes(range(256)) * 64


class Place:
    """A place of the blob that breaks off with an error after some bytes."""

    def __init__(self, name: str, error: Pt2hubError | None = None, after: int = 0) -> None:
        self.connections, self.ranged, self.seal = 4, True, ""
        self.url = self.server = name
        self.error, self.after = error, after
        self.reads = 0
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> Generator[bytes]:
        with self._lock:
            self.reads += 1
        if self.error:
            yield DATA[start : min(start + self.after, stop)]
            raise self.error
        for at in range(start, stop, 100):
            yield DATA[at : min(at + 100, stop)]


class Both:
    """A blob with both places, and what became of them."""

    def __init__(
        self, server: Place, bucket: Place | Pt2hubError, *, away: Pt2hubError | None = None
    ) -> None:
        self.opened = 0
        self.noted: list[Pt2hubError] = []
        self._bucket = bucket
        self.blob = FallbackBlob(server, self._open, away=away, note=self.noted.append)  # type: ignore[arg-type]

    def _open(self) -> Place:
        self.opened += 1
        if isinstance(self._bucket, Pt2hubError):
            raise self._bucket
        return self._bucket

    def read(self, start: int = 0, stop: int = len(DATA)) -> bytes:
        return b"".join(self.blob.read(start, stop))


def test_a_read_goes_on_in_the_bucket_where_the_server_broke_off() -> None:
    error = ServerUnreachable("broken")
    server, bucket = Place("server", error, after=777), Place("bucket")
    both = Both(server, bucket)
    assert both.read(10, 9000) == DATA[10:9000]
    assert both.read() == DATA
    assert (server.reads, both.opened, both.noted) == (1, 1, [error]), "the server is not asked again"
    assert (both.blob.url, both.blob.connections) == ("server", 4)


def test_a_server_that_was_away_a_moment_ago_is_not_asked() -> None:
    server, bucket = Place("server"), Place("bucket")
    assert Both(server, bucket, away=DatabaseUnavailable("down")).read() == DATA
    assert (server.reads, bucket.reads) == (0, 1)


def test_many_connections_that_break_at_once_open_the_bucket_once() -> None:
    for _ in range(20):
        server, bucket = Place("server", ServerUnreachable("broken"), after=50), Place("bucket")
        both = Both(server, bucket)
        pieces = [(at, min(at + 1000, len(DATA))) for at in range(0, len(DATA), 1000)]
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda piece, both=both: both.read(*piece), pieces))
        assert b"".join(found) == DATA
        assert both.opened == 1


@pytest.mark.parametrize("error", [NotFound("no such blob"), StorageUnavailable("SlowDown")])
def test_a_server_that_refuses_or_whose_storage_fails_is_not_replaced(error: Pt2hubError) -> None:
    both = Both(Place("server", error), Place("bucket"))
    with pytest.raises(type(error)):
        both.read()
    assert (both.opened, both.noted) == (0, [])


@pytest.mark.parametrize(
    "unreadable",
    [
        BadConfiguration("boto3 is missing", hint="pip install 'pt2hub[s3]'"),
        NotFound("no such object", hint="Check the bucket."),
        StorageUnavailable("HTTP 403", hint="Check the credentials.", context={"status": 403}),
    ],
)
def test_a_bucket_that_cannot_be_read_leaves_the_servers_error_and_the_server(
    unreadable: Pt2hubError,
) -> None:
    server = Place("server", ServerUnreachable("slow", hint="Wait."))
    both = Both(server, unreadable)
    for _ in range(2):
        with pytest.raises(ServerUnreachable, match="slow") as caught:
            both.read()
        assert "Wait. Its bucket cannot be read either" in str(caught.value.hint)
        assert str(unreadable.hint) in str(caught.value.hint)
    assert (server.reads, both.opened) == (2, 1)
    server.error = None
    assert both.read() == DATA, "it was only slow"


def test_a_bucket_that_is_busy_is_tried_again() -> None:
    busy = StorageUnavailable("HTTP 503", context={"status": 503})
    bucket = Place("bucket", busy, after=100)
    both = Both(Place("server", ServerUnreachable("down")), bucket)
    with pytest.raises(StorageUnavailable) as caught:
        both.read()
    assert "The server is away: down" in str(caught.value.hint)
    bucket.error = None
    assert both.read() == DATA
