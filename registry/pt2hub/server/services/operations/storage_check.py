"""Comparison of the database and the storage, in both directions, with bounded memory."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from pt2hub.domain.storage_check import MAX_LISTED, Finding, FindingKind, StorageCheck
from pt2hub.server.db.stores.blobs.damage import DamageStore
from pt2hub.server.db.stores.blobs.storage_check import CONTRADICTIONS, StorageCheckStore
from pt2hub.server.services.operations.journal import JournalService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.storage import Kind
    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.blobs.damage import BlobRow

_KINDS: tuple[Kind, ...] = ("blobs", "manifests")
_PAGE = 1000


class StorageCheckService:
    """Compares the rows of blobs with the objects in the storage; changes nothing."""

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        self._sessions = sessions
        self._storage = storage

    def check(self, seen: Callable[[int], object] = lambda _: None) -> StorageCheck:
        """Compare everything, beside servers that go on.

        Both are listed in the order of digests and merged, so that memory does not grow with them. A finding is looked
        up again before it is reported, since a blob may have been written or deleted between the two listings.

        Args:
            seen: Takes the number of objects and rows that were compared so far.

        Raises:
            StorageUnavailable: The storage does not answer.
        """
        tally = _Tally(seen)
        for kind in _KINDS:
            for row, objects in _merge(self._rows(kind, tally), self._objects(kind, tally)):
                tally.add(self._confirm(row, objects))
        for contradiction in CONTRADICTIONS:
            for finding in self._contradictions(contradiction):
                tally.add(finding)
        for finding in self._journal():
            tally.add(finding)
        return StorageCheck(tally.objects, tally.rows, tuple(tally.listed), dict(tally.counts))

    def _journal(self) -> Iterator[Finding]:
        for path, reason in JournalService(self._sessions, self._storage).find_damage().items():
            yield Finding.of(FindingKind.UNREADABLE_JOURNAL, path, reason)

    def _rows(self, kind: Kind, tally: _Tally) -> Iterator[BlobRow]:
        after = ""
        while True:
            with self._sessions.begin() as session:
                rows = StorageCheckStore(session).page(kind, after, _PAGE)
            if not rows:
                return
            tally.see(rows=len(rows))
            yield from rows
            after = rows[-1].key.digest

    def _objects(self, kind: Kind, tally: _Tally) -> Iterator[tuple[Digest, dict[StorageKey, int]]]:
        """Yield the sizes of the objects of each digest; generations of a digest are listed together."""
        for digest, objects in groupby(self._storage.objects(kind), lambda item: item.key.digest):
            sizes = {item.key.exact: item.size for item in objects}
            tally.see(objects=len(sizes))
            yield digest, sizes

    def _confirm(self, row: BlobRow | None, sizes: dict[StorageKey, int]) -> Finding | None:
        """Return what is wrong with a blob, if it is still wrong at another look."""
        if _compare(row, sizes) is None:
            return None
        key = row.key if row else next(iter(sizes))
        with self._sessions.begin() as session:
            now = DamageStore(session).row(key)
        generations = {*sizes, *([now.key.exact] if now else [])}
        found = {each: self._storage.size(each) for each in sorted(generations)}
        return _compare(now, {each: size for each, size in found.items() if size is not None})

    def _contradictions(self, kind: FindingKind) -> Iterator[Finding]:
        after = ""
        while True:
            with self._sessions.begin() as session:
                page = StorageCheckStore(session).contradictions(kind, after, _PAGE)
            for _, what, detail in page:
                yield Finding.of(kind, what, detail)
            if len(page) < _PAGE:
                return
            after = page[-1][0]


class _Tally:
    """Counts and findings, of each kind a bounded number."""

    def __init__(self, seen: Callable[[int], object]) -> None:
        self._seen = seen
        self.objects = self.rows = 0
        self.counts: Counter[str] = Counter()
        self.listed: list[Finding] = []

    def see(self, *, objects: int = 0, rows: int = 0) -> None:
        self.objects += objects
        self.rows += rows
        self._seen(self.objects + self.rows)

    def add(self, finding: Finding | None) -> None:
        if finding is None:
            return
        self.counts[finding.kind.value] += 1
        if self.counts[finding.kind.value] <= MAX_LISTED:
            self.listed.append(finding)


def _merge(
    rows: Iterator[BlobRow], objects: Iterator[tuple[Digest, dict[StorageKey, int]]]
) -> Iterator[tuple[BlobRow | None, dict[StorageKey, int]]]:
    """Yield each digest once, with its row and its objects, as far as there are any; both are in order."""
    row, item = next(rows, None), next(objects, None)
    while row or item:
        if item is None or (row and row.key.digest < item[0]):
            yield row, {}
            row = next(rows, None)
        elif row is None or item[0] < row.key.digest:
            yield None, item[1]
            item = next(objects, None)
        else:
            yield row, item[1]
            row, item = next(rows, None), next(objects, None)


def _compare(row: BlobRow | None, sizes: Mapping[StorageKey, int]) -> Finding | None:
    """Return what is wrong with a blob; blobs that are being written or deleted are in order."""
    if row is None:
        return _of_objects(FindingKind.UNKNOWN_OBJECT, sizes, "an object without a row") if sizes else None
    if row.state == "damaged":
        return Finding.of(FindingKind.DAMAGED, row.key.digest, "its bytes are missing or wrong")
    if row.state == "stored":
        return _compare_stored(row, sizes)
    if row.state == "deleted" and sizes:
        return _of_objects(FindingKind.LEFTOVER_OBJECT, sizes, "what is left of a deleted blob")
    return None


def _compare_stored(row: BlobRow, sizes: Mapping[StorageKey, int]) -> Finding | None:
    key = row.key.exact
    if key not in sizes:
        later = {each: size for each, size in sizes.items() if each > key}
        if later:
            return _of_objects(FindingKind.UNKNOWN_OBJECT, later, "of a later generation than the row")
        return Finding.of(FindingKind.MISSING_OBJECT, key.digest, f"nothing is stored at {key.path}")
    if sizes[key] != row.size:
        detail = f"{key.path} has {sizes[key]} bytes instead of {row.size}"
        return Finding.of(FindingKind.WRONG_SIZE, key.digest, detail)
    others = {each: size for each, size in sizes.items() if each != key}
    return _of_objects(FindingKind.LEFTOVER_OBJECT, others, "of an earlier generation") if others else None


def _of_objects(kind: FindingKind, sizes: Mapping[StorageKey, int], what: str) -> Finding:
    first = min(sizes)
    return Finding.of(kind, first.digest, f"{first.path} ({sizes[first]} bytes) is {what}")
