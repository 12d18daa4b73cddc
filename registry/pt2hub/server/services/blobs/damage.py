"""Checks stored blobs, records their damage and puts damaged bytes away.

A blob is damaged only if two readings in a row say so, and only if its row is still of the generation that was read: a
blob that was deleted or written anew meanwhile is not. The row is marked first; from then on nothing refers to the blob,
and whoever writes the bytes writes the next generation. Then the object is moved to `quarantine/`, so that no reader
finds it, however it reads. The blob stays damaged until its next generation is confirmed.
"""

from __future__ import annotations

import errno
import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.damage import Damage, DamageProblem
from pt2hub.domain.digests import CHUNK, Digest
from pt2hub.domain.storage import FIRST
from pt2hub.errors import (
    BlobDamaged,
    Deleted,
    DigestMismatch,
    NotFound,
    Pt2hubError,
    StorageUnavailable,
    TransientError,
)
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.blobs.damage import BlobRow, DamageStore, find_blob
from pt2hub.server.db.stores.retention.tombstones import TombstoneStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.wire.artifacts import DamagedPart

_BATCH = 100
_HOLDER = "scrub"
_PUT_AWAY = frozenset({DamageProblem.DIGEST, DamageProblem.SIZE})
"""Missing and unreadable objects stay where they are: they may come back."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one reading of a blob found; no problem if it is intact."""

    problem: DamageProblem | None
    size: int | None = None
    digest: Digest | None = None


class DamageService:
    """Damage of stored blobs."""

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        self._sessions = sessions
        self._storage = storage

    def find_readable(self, key: StorageKey) -> BlobRow | None:
        """Return the row of a blob that may be served; None if it has none.

        A presigned URL would outlast an object that is being deleted.

        Raises:
            Deleted: A forced deletion removed it.
            NotFound: The collector has it.
            BlobDamaged: It is damaged.
        """
        row = find_blob(self._sessions.reader, key)
        if row and row.state == "damaged":
            raise self.describe(key)
        if row and row.state in {"deleting", "deleted"}:
            raise self._explain_deletion(key)
        return row

    def _explain_deletion(self, key: StorageKey) -> NotFound | Deleted:
        with self._sessions.begin() as session:
            tombstone = TombstoneStore(session).of_refused(key.kind, key.digest)
        if tombstone is None:
            return NotFound(f"Blob {key.digest} not found.", where=key.digest)
        known = readable().covers(tombstone.model or "")
        return Deleted(
            f"Blob {key.digest} {tombstone.origin if known else 'was deleted'}",
            where=key.digest,
            hint="It was removed by force and is not served again; use another version.",
            context={"forced": True} | ({"reason": tombstone.reason, "at": tombstone.at} if known else {}),
        )

    def check(
        self, row: BlobRow, *, by: str, seen: Callable[[int], object] = lambda _: None
    ) -> Damage | None:
        """Read a blob whole, and record its damage; note otherwise that it is intact.

        Args:
            by: What checks it, for the record.
            seen: Takes the number of bytes of each chunk; may wait, or raise to stop.

        Returns:
            Its damage; None if it is intact, or was deleted or written anew meanwhile.

        Raises:
            StorageUnavailable: The storage does not answer, or is empty, as a directory is that is not mounted.
        """
        reading = self._read(row, seen)
        if reading.problem:
            reading = self._read(row, seen)  # it may have been changed on the way
        if reading.problem is DamageProblem.MISSING and row.state == "pending":
            return None
        if reading.problem is None:
            with self._sessions.begin() as session:
                DamageStore(session).set_checked([replace(row, size=reading.size or 0)])
            return None
        if reading.problem is DamageProblem.MISSING:
            self._require_content(row.key)
        damage = _damage(row, reading, by)
        if not self._record(damage):
            return None
        if reading.problem is DamageProblem.MISSING and self._storage.size(row.key) is not None:
            return self._look_again(damage)  # a writer put it there just before the row was marked
        if reading.problem in _PUT_AWAY:
            self._put_away(row.key)
        return damage

    def check_key(self, key: StorageKey, *, by: str) -> Damage | None:
        """Check a blob by its key, if it is stored or being written; see `check`."""
        with self._sessions.begin() as session:
            row = DamageStore(session).written_row(key)
        return self.check(row, by=by) if row else None

    def request_check(self, key: StorageKey, *, age: timedelta = timedelta()) -> None:
        """Let the scrub check a blob before all others, unless it was checked within a time."""
        with self._sessions.begin() as session:
            DamageStore(session).request_check(key, age=age)

    def open(self, key: StorageKey) -> tuple[BlobRow, int]:
        """Return which generation to read, and its size, which is that of the right bytes.

        Raises:
            NotFound: The blob does not exist.
            Deleted: A forced deletion removed it.
            BlobDamaged: It is damaged.
        """
        row = self.find_readable(key) or BlobRow(key, "", 0)
        found = row if row.state == "stored" else BlobRow(key, row.state, 0)
        size = self._storage.size(found.key)
        if row.state == "stored" and size != row.size:
            self.refuse(row)
            size = self._storage.size(found.key)  # only the row was wrong
        if size is None:
            raise NotFound(f"Blob {key.digest} not found.", where=key.digest)
        return found, size

    def refuse(self, row: BlobRow) -> None:
        """Check a blob that looks damaged.

        Raises:
            BlobDamaged: It is.
        """
        if self.check(row, by="read"):
            raise self.describe(row.key)

    def read(self, row: BlobRow, size: int, start: int, stop: int) -> Iterator[bytes]:
        """Return bytes of a blob; whole ones are hashed, small ones of one chunk before this returns.

        Raises:
            BlobDamaged: The digest is wrong. While the bytes are read, their end is kept back, so that the reader has
                less than the announced length and knows that it failed.
        """
        chunks = self._storage.read(row.key, start, stop)
        if (start, stop) != (0, size):
            return chunks
        checked = self._hash(row, chunks)
        return iter([b"".join(checked)]) if size <= CHUNK else checked

    def _hash(self, row: BlobRow, chunks: Iterator[bytes]) -> Iterator[bytes]:
        hasher = hashlib.sha256()
        last = b""
        for chunk in chunks:
            if last:
                yield last
            hasher.update(chunk)
            last = chunk
        if f"sha256:{hasher.hexdigest()}" != row.key.digest:
            self._report(row)
            raise BlobDamaged(_MESSAGE, where=row.key.digest, context={"kind": row.key.kind})
        yield last

    def explain(self, error: Pt2hubError) -> Pt2hubError:
        """Return the error of a blob that was not found or has other bytes, with its damage if it is damaged.

        A blob that should be there is checked, so that its damage is known from then on.
        """
        kind, digest = error.context.get("kind"), error.where
        if not isinstance(error, NotFound | BlobDamaged) or kind not in ("blobs", "manifests") or not digest:
            return error
        key = StorageKey(kind, Digest(digest))
        try:
            self.check_key(key, by="read")
            return self.describe(key, otherwise=error)
        except TransientError as unknown:
            _log.warning("damage not checked", digest=digest, error=str(unknown))
            return unknown if isinstance(unknown, StorageUnavailable) else error

    def describe(self, key: StorageKey, *, otherwise: Pt2hubError | None = None) -> Pt2hubError:
        """Return the error of a damaged blob; `otherwise` if it is not known to be damaged."""
        with self._sessions.begin() as session:
            found = [item for item in DamageStore(session).among([key.digest]) if item.kind == key.kind]
        if not found and otherwise:
            return otherwise
        context = {"kind": key.kind, "problem": found[0].problem.value if found else "digest"}
        message = describe_problem(found[0]) if found else _MESSAGE
        hint = f"The server's operator mends it: pt2hub admin heal {key.digest}. Uploading the right bytes does so too."
        return BlobDamaged(message, where=key.digest, hint=hint, context=context)

    def list_damaged(self, limit: int = 1000, after: tuple[str, str] = ("", "")) -> list[Damage]:
        """Return blobs that are damaged now, in the order of kind and digest."""
        with self._sessions.begin() as session:
            return DamageStore(session).list_damaged(limit, after)

    def list_lost(self) -> list[Damage]:
        """Return damaged manifests that nothing refers to, as after a rebuild: no listing shows those put away."""
        damaged = [item for item in self.list_damaged() if item.kind == "manifests"]
        with self._sessions.begin() as session:
            store = DamageStore(session)
            deleted = TombstoneStore(session).deleted_among([item.digest for item in damaged])
            lost = [item for item in damaged if item.digest not in deleted]
            return [item for item in lost if not store.owners(StorageKey.manifest(item.digest), 1)]

    def read_quarantined(self, key: StorageKey) -> Iterator[bytes]:
        """Yield what was put away of a damaged blob: a machine with bad memory may have read right bytes wrong.

        Raises:
            NotFound: Nothing was put away.
        """
        with self._sessions.begin() as session:
            found = DamageStore(session).among([key.digest])
        put_away = [item for item in found if item.kind == key.kind and item.problem in _PUT_AWAY]
        for item in put_away:
            yield from self._storage.read_quarantined(key.at(item.generation))
        if not put_away:
            raise NotFound("Nothing was put away.", where=key.digest)

    def parts(self, artifacts: Sequence[str]) -> dict[str, tuple[DamagedPart, ...]]:
        """Return the damaged parts of artifacts by digest, of those that have any."""
        found: dict[str, tuple[DamagedPart, ...]] = {}
        with self._sessions.begin() as session:
            for artifact, part in DamageStore(session).parts(artifacts):
                found[artifact] = (*found.get(artifact, ()), part)
        return found

    def record_missing(self, needed: Mapping[StorageKey, int], owner: str | None = None) -> None:
        """Record the blobs among these that have no row and are not in the storage; a reindex calls it.

        Args:
            needed: Lengths by key; 0 where it is not known.
            owner: What needs them; None if it has no row itself.
        """
        with self._sessions.begin() as session:
            unknown = DamageStore(session).unknown(needed)
        missing = {key: needed[key] for key in unknown if self._storage.size(key) is None}
        with self._sessions.begin() as session:
            store = DamageStore(session)
            if missing:
                store.add_missing(missing, found_by="admin")
            if owner:
                store.refer_damaged(needed, owner)

    def tidy(self) -> None:
        """Move damaged objects away that workers found, or whose finder died; a maintenance task."""
        with self._sessions.begin() as session:
            loose = DamageStore(session).list_loose(_BATCH)
        for key in loose:
            self._put_away(key)

    def recheck(self) -> int:
        """Check blobs again that were missing or unreadable, since disks come back; return how many are intact."""
        after, restored = ("", ""), 0
        while True:
            with self._sessions.begin() as session:
                away = DamageStore(session).list_away(_BATCH, after)
            restored += sum(self._recheck(damage) for damage in away)
            if len(away) < _BATCH:
                return restored
            after = away[-1].kind, away[-1].digest

    def _recheck(self, damage: Damage) -> bool:
        """Check a blob again that was away; return whether it is intact now."""
        return self._look_again(damage) is None and self._copy_forward(damage)

    def _copy_forward(self, damage: Damage) -> bool:
        """Write bytes that came back as the generation that writers already have; return whether the blob is intact.

        No row returns to an earlier generation, so that no object of a later one is left behind.
        """
        key = StorageKey(damage.kind, damage.digest)
        with self._sessions.begin() as session:
            row = DamageStore(session).lock_row(key)
            if row is None or row.state != "damaged":
                return True
            target = BlobStore(session).revive({key: row.size}, _HOLDER)[key].key
        if self._storage.size(target) is not None and self.check_key(key, by="scrub"):
            return False
        with suppress(DigestMismatch, NotFound):  # it changed or went away again
            size = self._storage.write(target, self._storage.read(key.at(damage.generation)))
            with self._sessions.begin() as session:
                return not BlobStore(session).confirm({target: size}, _HOLDER).gone
        return False

    def _look_again(self, damage: Damage) -> Damage | None:
        key = StorageKey(damage.kind, damage.digest, damage.generation)
        reading = self._read(BlobRow(key, "damaged", damage.expected_bytes), lambda _: None)
        if reading.problem:
            return damage
        with self._sessions.begin() as session:
            if DamageStore(session).restore(key, reading.size or 0):
                _log.info("blob is intact again", digest=key.digest)
        return None

    def _read(self, row: BlobRow, seen: Callable[[int], object]) -> _Reading:
        hasher, size = hashlib.sha256(), 0
        try:
            for chunk in self._storage.read(row.key.exact):
                hasher.update(chunk)
                size += len(chunk)
                seen(len(chunk))
        except NotFound:
            return _Reading(DamageProblem.MISSING)
        except StorageUnavailable as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO:
                return _Reading(DamageProblem.UNREADABLE, self._storage.size(row.key.exact))
            raise
        digest = Digest(f"sha256:{hasher.hexdigest()}")
        if digest == row.key.digest:
            return _Reading(None, size, digest)
        problem = DamageProblem.DIGEST if size == row.size else DamageProblem.SIZE
        return _Reading(problem, size, digest)

    def _require_content(self, key: StorageKey) -> None:
        """Refuse to call a blob missing in a storage that has nothing at all."""
        if next(iter(self._storage.keys(key.kind)), None) is None:
            raise StorageUnavailable(
                f"The storage is empty, but {key.digest} should be in it",
                where=key.path,
                hint="Check that the directory of PT2HUB_STORAGE is mounted. If the bytes are lost: pt2hub admin fsck.",
            )

    def _record(self, damage: Damage) -> bool:
        with self._sessions.begin() as session:
            recorded = DamageStore(session).add(damage)
        if recorded:
            _log.error(
                "blob is damaged",
                kind=damage.kind,
                digest=damage.digest,
                generation=damage.generation,
                problem=damage.problem.value,
                found_by=damage.found_by,
            )
        return recorded

    def _report(self, row: BlobRow) -> None:
        """Record the damage of a blob that was just read; without a row or a database it is only logged."""
        try:
            damage = self.check_key(row.key, by="read")
        except TransientError as error:
            _log.error("blob is damaged", digest=row.key.digest, unrecorded=str(error))
        else:
            if damage is None:
                _log.error("blob had other bytes than its digest", digest=row.key.digest)

    def _put_away(self, key: StorageKey) -> None:
        """Move a damaged object away; where this process may not, or the storage fails, maintenance does it later."""
        try:
            self._storage.quarantine(key)
            with self._sessions.begin() as session:
                DamageStore(session).set_quarantined(key)
        except Pt2hubError as error:
            _log.warning("damaged blob not moved away yet", digest=key.digest, error=str(error))


_MESSAGE = "The stored blob is damaged: its bytes have another digest."


def describe_problem(damage: Damage) -> str:
    """Return in one sentence what is wrong with a blob."""
    if damage.problem is DamageProblem.MISSING:
        return "The blob is damaged: it is missing from the storage."
    if damage.problem is DamageProblem.UNREADABLE:
        return "The blob is damaged: the disk cannot read it."
    if damage.problem is DamageProblem.SIZE:
        return f"The stored blob is damaged: it has {damage.found_bytes} bytes instead of {damage.expected_bytes}."
    return f"The stored blob is damaged: its bytes have the digest {damage.found_digest}."


def _damage(row: BlobRow, reading: _Reading, by: str) -> Damage:
    assert reading.problem is not None, "only damage is recorded"
    return Damage(
        row.key.kind,
        row.key.digest,
        row.key.generation or FIRST,
        reading.problem,
        row.size,
        reading.size,
        reading.digest,
        by,
    )
