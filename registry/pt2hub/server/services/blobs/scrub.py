"""The scrub: reads stored blobs again at a set rate, those first that were not checked for longest."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.damage import MAX_LISTED_DAMAGE, ScrubReport
from pt2hub.errors import DatabaseReadOnly
from pt2hub.server.db.stores.blobs.damage import DamageStore
from pt2hub.server.db.stores.blobs.scrub import CLAIM, ScrubStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pt2hub.domain.damage import Damage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.services.blobs.damage import DamageService

MIN_INTERVAL = timedelta(days=1)
"""Nothing is checked more often than that, however small the storage; what was reported is checked at once."""
RECENT = timedelta(days=7)
"""`pt2hub admin scrub` leaves out what was checked since then."""
_MIN_BLOB_BYTES = 64 << 10
"""Counted for a smaller blob, since each takes a request or two: 64 small blobs a second at the default rate."""
TAKEN_AT_ONCE = 50
"""Blobs of one query: more than may be requested (`MAX_REQUESTED`)."""
_RENEW_S = CLAIM.total_seconds() / 4


class ScrubService:
    """Scrubs the storage; of several servers one does it.

    Args:
        bytes_per_s: Rate of the scrub in the background; 0 for none.
        check_documents: Checks what has no rows of blobs; returns paths of damaged files, with what is wrong.
    """

    def __init__(
        self,
        sessions: Sessions,
        damage: DamageService,
        *,
        bytes_per_s: int,
        check_documents: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._sessions = sessions
        self._damage = damage
        self._bytes_per_s = bytes_per_s
        self._check_documents = check_documents
        self._documents_due = 0.0
        self._holder = secrets.token_hex(8)

    def run_in_turn(self, wait: Callable[[float], bool]) -> None:
        """Check everything that is due, unless another process does so.

        Args:
            wait: Waits for some seconds; returns whether to stop.

        Raises:
            StorageUnavailable: The storage does not answer; the next turn goes on there.
        """
        if not self._bytes_per_s or not self._claim():
            return
        try:
            self._damage.recheck()
            if time.monotonic() >= self._documents_due:
                self._check_documents()
                self._documents_due = time.monotonic() + MIN_INTERVAL.total_seconds()
            pace = _Pace(self._bytes_per_s, wait, self._keep_claim)
            self._run(MIN_INTERVAL, pace)
        except _StoppedError:
            pass
        finally:
            self._release()

    def count_due(self, *, everything: bool) -> tuple[int, int]:
        """Return number and bytes of the blobs that `run` would check."""
        with self._sessions.begin() as session:
            return DamageStore(session).sum_due(_age(everything=everything))

    def run(
        self,
        *,
        everything: bool = False,
        bytes_per_s: int = 0,
        seen: Callable[[int], object] = lambda _: None,
    ) -> ScrubReport:
        """Check what was not checked for a week, or everything, beside the scrub in the background.

        Args:
            bytes_per_s: Largest rate; 0 for as fast as possible.
            seen: Takes the number of bytes that were read so far.
        """
        restored = self._damage.recheck()
        documents = self._check_documents()
        pace = _Pace(bytes_per_s, _sleep, lambda: None, seen)
        report = self._run(_age(everything=everything), pace, restored)
        return replace(report, documents=tuple(sorted(documents.items())))

    def _run(self, age: timedelta, pace: _Pace, restored: int = 0) -> ScrubReport:
        began, blobs, read = time.monotonic(), 0, 0
        damaged: list[Damage] = []
        while True:
            # Blobs that were checked since the beginning are not due again.
            elapsed = timedelta(seconds=time.monotonic() - began)
            with self._sessions.begin() as session:
                batch = DamageStore(session).list_due(age + elapsed, TAKEN_AT_ONCE)
            if not batch:
                break
            before = pace.bytes
            for row in batch:
                found = self._damage.check(row, by="scrub", seen=pace.read)
                pace.end_blob()
                damaged += [found] if found else []
            blobs, read = blobs + len(batch), read + pace.bytes - before
            with self._sessions.begin() as session:
                ScrubStore(session).add(len(batch), pace.bytes - before)
        seen_now = {(item.kind, item.digest) for item in damaged}
        known = sum((item.kind, item.digest) not in seen_now for item in self._damage.list_damaged())
        return ScrubReport(blobs, read, tuple(damaged[:MAX_LISTED_DAMAGE]), restored, known)

    def _claim(self) -> bool:
        try:
            with self._sessions.begin() as session:
                return ScrubStore(session).claim(self._holder)
        except DatabaseReadOnly:  # nothing could be recorded
            return False

    def _keep_claim(self) -> None:
        if not self._claim():
            raise _StoppedError

    def _release(self) -> None:
        with self._sessions.begin() as session:
            ScrubStore(session).release(self._holder)


class _StoppedError(Exception):
    """The process is stopping, or another one has the scrub."""


class _Pace:
    """Slows reading down to a rate.

    Attributes:
        bytes: Bytes that were read.
    """

    def __init__(
        self,
        bytes_per_s: int,
        wait: Callable[[float], bool],
        renew: Callable[[], None],
        seen: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._wait = wait
        self._renew = renew
        self._seen = seen
        self._next = self._renewed = time.monotonic()
        self._of_blob = 0
        self.bytes = 0

    def read(self, count: int) -> None:
        """Take the size of a chunk, and wait until the next one may be read."""
        self._of_blob += count
        self.bytes += count
        self._seen(self.bytes)
        self._spend(count)

    def end_blob(self) -> None:
        """Take the end of a blob."""
        self._spend(max(0, _MIN_BLOB_BYTES - self._of_blob))
        self._of_blob = 0

    def _spend(self, count: int) -> None:
        if self._bytes_per_s:
            now = time.monotonic()
            self._next = max(self._next, now - 1) + count / self._bytes_per_s
            if self._wait(max(0.0, self._next - now)):
                raise _StoppedError
        if time.monotonic() - self._renewed > _RENEW_S:
            self._renew()
            self._renewed = time.monotonic()


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _age(*, everything: bool) -> timedelta:
    return timedelta() if everything else RECENT
