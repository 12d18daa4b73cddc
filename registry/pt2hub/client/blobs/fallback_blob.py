"""A blob of a server, read from the server's bucket while the server is away."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pt2hub.client.blobs.bucket import UNREADABLE, may_pass
from pt2hub.client.http.outages import is_away, with_hint
from pt2hub.errors import Pt2hubError, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pt2hub.client.http.remote_blob import RemoteBlob


class FallbackBlob:
    """A `BlobSource` with two places. Nothing is sent before the first read.

    Args:
        remote: The blob on the server.
        open_bucket: Returns the blob in the bucket.
        away: The error of the server if it was away a moment ago; then the bucket is read first.
        note: Takes the error of a server that is away now.
    """

    def __init__(
        self,
        remote: RemoteBlob,
        open_bucket: Callable[[], RemoteBlob],
        *,
        away: Pt2hubError | None,
        note: Callable[[Pt2hubError], object],
    ) -> None:
        self._remote = remote
        self._open_bucket = open_bucket
        self._away = away
        self._note = note
        self._current = remote
        self._unreadable = ""
        self._lock = threading.Lock()

    @property
    def connections(self) -> int:
        """How many concurrent reads pay."""
        return self._current.connections

    @property
    def ranged(self) -> bool:
        """Whether ranges are answered."""
        return self._current.ranged

    @property
    def seal(self) -> str:
        """URL and ETag of the answers."""
        return self._current.seal

    @seal.setter
    def seal(self, value: str) -> None:
        self._current.seal = value

    @property
    def url(self) -> str:
        """Address of the blob on the server."""
        return self._remote.url

    @property
    def server(self) -> str:
        """Address of the server."""
        return self._remote.server

    def read(self, start: int, stop: int) -> Generator[bytes]:
        """Yield the bytes of a range, without retries; see `RemoteBlob.read`.

        Raises:
            Pt2hubError: Of the server; where the bucket cannot be read either, with that in its hint.
        """
        if self._away and not self._unreadable:
            yield from self._read_bucket(start, stop, self._away)
            return
        try:
            for chunk in self._remote.read(start, stop):
                start += len(chunk)
                yield chunk
        except Pt2hubError as exc:
            if not is_away(exc) or isinstance(exc, StorageUnavailable):
                raise  # the server refuses, or its storage fails, which is the bucket itself
            if self._unreadable:
                raise with_hint(exc, self._unreadable) from exc
            self._note(exc)
            away = exc
        else:
            return
        yield from self._read_bucket(start, stop, away)

    def _read_bucket(self, start: int, stop: int, away: Pt2hubError) -> Generator[bytes]:
        try:
            yield from self._switch(away).read(start, stop)
        except UNREADABLE as exc:
            said = f"{exc.message}. {exc.hint or ''}".strip()
            if isinstance(exc, StorageUnavailable) and may_pass(exc):
                raise with_hint(exc, f"The server is away: {away.message}") from exc
            with self._lock:
                self._current, self._unreadable = self._remote, f"Its bucket cannot be read either: {said}"
            raise with_hint(away, self._unreadable) from exc

    def _switch(self, away: Pt2hubError) -> RemoteBlob:
        """Return the blob in the bucket, which is read from now on."""
        with self._lock:
            if self._current is self._remote:
                self._current, self._away = self._open_bucket(), away
            return self._current
