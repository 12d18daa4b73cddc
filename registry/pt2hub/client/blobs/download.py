"""Download of a blob over several connections, hashed in order while it arrives."""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pt2hub.client.http.ranges import RangesIgnored
from pt2hub.domain.digests import CHUNK, Digest
from pt2hub.errors import ServerUnreachable, StorageUnavailable
from pt2hub.retry import jitter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pt2hub.client.blobs.partial import PartialFile

MIN_PIECE_BYTES = 4 << 20
"""Smallest request of a further connection."""
MAX_PIECE_BYTES = 8 << 20
"""Largest request while others wait: hashing needs the bytes in order, and lags behind by the pieces under way."""
_ATTEMPTS = 3
_STORAGE_ATTEMPTS = 6
"""Attempts while a storage answers SlowDown: six seconds with the pauses."""
_PAUSE_SECONDS = 0.2
_MAX_DOUBLINGS = 4
_WATCH_SECONDS = 0.25
_START_SECONDS = 0.01
"""How often to look whether the first answer says that more connections pay."""
_GRACE_SECONDS = 2.0
"""How long to wait for the connections after one failed."""


class BlobSource(Protocol):
    """Where the bytes of a blob come from, such as a `RemoteBlob`.

    Attributes:
        seal: URL and ETag of the answers, empty if unknown; set to that of an earlier process, they must be equal.
    """

    seal: str

    @property
    def connections(self) -> int:
        """How many concurrent reads pay, as far as known; one before the first answer."""

    @property
    def ranged(self) -> bool:
        """Whether ranges are answered; otherwise a read takes the whole blob and skips to its first byte."""

    @property
    def url(self) -> str:
        """Address of the blob, for errors."""

    @property
    def server(self) -> str:
        """Address of the server: failures with one say nothing about another."""

    def read(self, start: int, stop: int) -> Generator[bytes]:
        """Yield the bytes of a range, without retries; several threads may read at a time."""


@dataclass
class _Patience:
    """Decides whether a connection that failed is tried again: as long as bytes arrive, on this one or on others.

    Attributes:
        failures: Of this connection since it brought a byte.
    """

    failures: int = 0
    _vain: int = 0
    _done: int = -1

    def is_over(self, error: ServerUnreachable | StorageUnavailable, done: int) -> bool:
        """Count a failure; return whether it is one too many since the last byte.

        Args:
            done: Bytes that are there.
        """
        self.failures += 1
        self._vain, self._done = (self._vain + 1 if self._done == done else 1), done
        return self._vain == (_ATTEMPTS if isinstance(error, ServerUnreachable) else _STORAGE_ATTEMPTS)

    def pause(self) -> float:
        """Return the seconds until the next attempt."""
        return jitter(_PAUSE_SECONDS * 2 ** min(self.failures - 1, _MAX_DOUBLINGS))


class Download:
    """The download of what a partial file lacks.

    Args:
        watch: Called a few times per second on the caller's thread, with the number of bytes that are there; what it
            raises ends the download.
    """

    def __init__(self, source: BlobSource, partial: PartialFile, watch: Callable[[int], None]) -> None:
        self._source = source
        self._partial = partial
        self._watch = watch
        self._changed = threading.Condition()
        self._missing = partial.missing()
        self._rest = (0, 0)
        self._workers: list[threading.Thread] = []
        self._working = 0
        self._failure: BaseException | None = None
        self._over = threading.Event()

    def run(self) -> Digest:
        """Download the missing bytes, and return the digest of all.

        Raises:
            ServerUnreachable: The connections broke again and again; the error says how much came.
            StorageUnavailable: The same for the storage, or it refused again and again.
            SourceChanged: The source has other bytes than those that are there.
            Pt2hubError: The server's own error.
            OSError: The disk is full or fails.
        """
        self._source.seal = self._partial.seal
        try:
            found = self._hash()
        finally:
            self._stop()
        return self._hash() if self._rest[1] else found  # one answer may have overwritten what was hashed

    def _hash(self) -> Digest:
        hasher, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
        hashed = 0
        while hashed < self._partial.size:
            self._watch(self._partial.done)
            if reach := self._await_bytes(hashed):
                count = self._partial.read_into(buffer[: reach - hashed], hashed)
                hasher.update(buffer[:count])
                hashed += count
        return Digest(f"sha256:{hasher.hexdigest()}")

    def _await_bytes(self, hashed: int) -> int:
        """Wait a moment for bytes that can be hashed; return where they end, 0 if none came.

        It also starts connections that pay, and raises the failure of one.
        """
        with self._changed:
            while self._pays():
                self._start_worker()
            seconds = _WATCH_SECONDS if self._source.connections > 1 else _START_SECONDS
            self._changed.wait_for(lambda: self._failure or self._partial.reach > hashed, seconds)
            if self._failure:
                raise self._failure
        reach = self._partial.reach
        return reach if reach > hashed else 0

    def _pays(self) -> bool:
        """Return whether another connection would help, or none is there for what is missing."""
        left = sum(stop - start for start, stop in self._missing)
        enough = MIN_PIECE_BYTES if self._working else 1
        return self._working < self._source.connections and left >= enough

    def _start_worker(self) -> None:
        # A daemon: a read that hangs must not keep the program after Ctrl-C.
        thread = threading.Thread(target=self._work, daemon=True)
        self._workers.append(thread)
        self._working += 1
        thread.start()

    def _stop(self) -> None:
        self._over.set()
        until = time.monotonic() + _GRACE_SECONDS
        for thread in self._workers:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        """Fetch pieces until none is left."""
        failure: BaseException | None = None
        try:
            while piece := self._next_piece():
                self._fetch(*piece)
        except BaseException as exc:  # noqa: BLE001  # it is raised where `run` was called
            failure = exc
        with self._changed:
            self._working -= 1
            self._failure = self._failure or failure
            self._changed.notify()

    def _next_piece(self) -> tuple[int, int] | None:
        """Take the next piece."""
        with self._changed:
            if not self._missing or self._over.is_set():
                return None
            if not self._source.ranged:  # the rest comes in one answer
                self._rest = self._missing[0][0], self._missing[-1][1]
                self._missing = []
                return self._rest
            start, stop = self._missing.pop(0)
            left = stop - start + sum(stop - start for start, stop in self._missing)
            sharers = max(self._source.connections, self._working)
            # The last round has smaller pieces, so that all connections end together. What is small comes in one answer.
            last = sharers > 1 and left < sharers * MAX_PIECE_BYTES
            end = start + (MIN_PIECE_BYTES if last else MAX_PIECE_BYTES)
            end -= end % MIN_PIECE_BYTES  # storages keep files in chunks of such sizes, and read whole ones
            end = stop if stop - end < MIN_PIECE_BYTES else end
            if end < stop:
                self._missing.insert(0, (end, stop))
            return start, end

    def _give_back(self, start: int, stop: int) -> None:
        with self._changed:
            if not self._rest[0] <= start < stop <= self._rest[1]:  # else another connection brings it
                self._missing.append((start, stop))
                self._missing.sort()

    def _fetch(self, start: int, stop: int) -> None:
        """Fetch a piece; go on where a connection broke."""
        patience = _Patience()
        while start < stop and not self._over.is_set():
            try:
                with closing(self._source.read(start, stop)) as chunks:
                    for chunk in chunks:
                        if self._over.is_set():
                            return
                        self._take(start, chunk)
                        start += len(chunk)
                        patience.failures = 0
            except RangesIgnored:
                self._give_back(start, stop)  # to be read with the rest
                return
            except (ServerUnreachable, StorageUnavailable) as exc:
                if patience.is_over(exc, self._partial.done):
                    raise self._give_up(exc) from exc
                self._over.wait(patience.pause())

    def _take(self, start: int, chunk: bytes) -> None:
        self._partial.record_seal(self._source.seal)
        self._partial.write(start, chunk)
        with self._changed:
            self._changed.notify()

    def _give_up(self, exc: ServerUnreachable | StorageUnavailable) -> ServerUnreachable | StorageUnavailable:
        done, size = self._partial.done, self._partial.size
        return exc.replace(
            message=f"The download stopped after {done} of {size} bytes, and retries made no progress: {exc.message}",
            where=self._source.url if isinstance(exc, ServerUnreachable) else exc.where,
            context={"received": done, "expected": size},
        )
