"""Writes blobs to storage, with rows that protect them from collection.

A writer first leases the blob in a transaction of its own, then writes it, then confirms it in another transaction.
Only then may something refer to it. A process may die after any step: the next holder of the same bytes writes the
same generation, which is safe since nothing is ever overwritten; without another holder the lease expires.

Damaged bytes are replaced by the next generation. Known damage shows in the row until that one is confirmed. Where the object under a key has another
length than the bytes to write, and before bytes of an upload are thrown away because they are stored already, the stored
ones are checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.errors import BlobGone, DigestMismatch, DigestRefused
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.retention.tombstones import TombstoneStore
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.blobs.damage import DamageService

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.blobs.blobs import LeasedBlob

_MAX_TRIES = 3
"""Blobs are written again if their lease expired meanwhile and they were collected, or if they turn out damaged."""


@dataclass(frozen=True, slots=True)
class BlobChunk:
    """A blob to store, from memory or from a file."""

    key: StorageKey
    size: int
    source: bytes | Path


class BlobService:
    """Stores blobs under leases, so that they stay until something refers to them.

    Args:
        found_by: What this process is, for the record of damage that it finds.
    """

    def __init__(self, sessions: Sessions, storage: Storage, *, found_by: str = "upload") -> None:
        self._sessions = sessions
        self._storage = storage
        self._damage = DamageService(sessions, storage)
        self._found_by = found_by

    def store(self, pieces: Sequence[BlobChunk], *, holder: str) -> None:
        """Store and lease blobs, in the order given; those already stored are only checked.

        They are checked in storage although their rows exist, so that blobs an operator lost are restored.

        Args:
            holder: The future referrer of the blobs: `build:<id>:<attempt>` and the like.

        Raises:
            DigestMismatch: A blob has another digest or size.
            BlobGone: The blobs were collected again and again.
        """
        left = {piece.key: piece for piece in pieces}
        for _ in range(_MAX_TRIES):
            if not left:
                return
            leased = self._lease({key: piece.size for key, piece in left.items()}, holder)
            damaged = {key for key, piece in left.items() if not self._put(leased[key].key, piece)}
            written = {
                each.key: left[key].size
                for key, each in leased.items()
                if not each.stored and key not in damaged
            }
            gone = self._confirm(written, holder) | damaged
            left = {key: piece for key, piece in left.items() if key in gone}
        if left:
            raise _gone(next(iter(left)))

    def write(
        self,
        key: StorageKey,
        chunks: Iterable[bytes],
        *,
        holder: str,
        limit: int | None = None,
        by: Actor | None = None,
    ) -> int:
        """Store and lease a stream of unknown length; where it is stored already, the stored bytes are checked first.

        Args:
            chunks: The bytes; errors that it raises pass through.
            limit: Maximum size in bytes.
            by: Who uploads it, None for the server itself.

        Returns:
            The number of bytes.

        Raises:
            DigestMismatch: The bytes have another digest.
            TooLarge: There are more than `limit`.
            BlobGone: The lease expired before they had arrived, and they were collected.
        """
        leased = self._lease_intact(key, holder)
        size = self._storage.write(leased.key, chunks, limit=limit)
        if not leased.stored:
            self.confirm(leased.key, size, holder=holder, by=by)
        return size

    def hold(
        self, key: StorageKey, size: int, *, holder: str, by: Actor | None = None
    ) -> tuple[StorageKey, bool]:
        """Lease a blob that a client or another process writes, and check whether it is stored already.

        Where it has another length, it is checked: a damaged one counts as not stored.

        Args:
            holder: The writer or future referrer of the blob.
            by: Who has it confirmed, where that has an audit entry of its own.

        Returns:
            Its key with the generation to write, and whether it is stored, verified and confirmed.

        Raises:
            DigestMismatch: It is stored with another size.
            BlobGone: It is being collected; the next try has a new generation.
        """
        leased = self._lease({key: size}, holder)[key]
        found = self._storage.size(leased.key)
        if found not in (None, size) and self._damage.check_key(leased.key, by=self._found_by):
            leased = self._lease({key: size}, holder)[key]
            found = self._storage.size(leased.key)
        if found is None:
            return leased.key, False
        if found != size:
            raise DigestMismatch(
                f"The blob stored under this digest has {found} bytes, not {size}.",
                where=key.digest,
                hint="Compute digest and size from the same bytes; the stored ones were checked and are right.",
            )
        if not leased.stored:
            self.confirm(leased.key, size, holder=holder, by=by)
        return leased.key, True

    def confirm(self, key: StorageKey, size: int, *, holder: str, by: Actor | None = None) -> None:
        """Confirm that a blob was written and verified.

        Args:
            key: Its key with the generation that `hold` returned.

        Raises:
            BlobGone: The lease expired and the blob was collected: it must be written again.
        """
        if self._confirm({key: size}, holder, by=by):
            raise _gone(key)

    def tidy(self) -> None:
        """Drop expired leases."""
        with self._sessions.begin() as session:
            BlobStore(session).drop_expired()

    def _lease(self, sizes: Mapping[StorageKey, int], holder: str) -> dict[StorageKey, LeasedBlob]:
        with self._sessions.begin() as session:
            leased = BlobStore(session).lease(sizes, holder)
        rest = {key: size for key, size in sizes.items() if key not in leased}
        if rest:  # in another transaction: rows are locked in one order, with a stronger lock than before
            with self._sessions.begin() as session:
                leased |= BlobStore(session).revive(rest, holder)
                _check_accepted(
                    session, rest
                )  # with the rows locked: a forced deletion came before or comes after
        return leased

    def _confirm(
        self, sizes: Mapping[StorageKey, int], holder: str, *, by: Actor | None = None
    ) -> set[StorageKey]:
        if not sizes:
            return set()
        with self._sessions.begin() as session:
            confirmed = BlobStore(session).confirm(sizes, holder)
            if by is not None:
                for key in confirmed.changed:
                    audit_log.record(session, by, Action.BLOB_UPLOAD, key.digest, size=sizes[key])
            return confirmed.gone

    def _lease_intact(self, key: StorageKey, holder: str) -> LeasedBlob:
        """Lease a blob to write; if something lies there already and is damaged, its next generation."""
        leased = self._lease({key: 0}, holder)[key]
        there = leased.stored or self._storage.size(leased.key) is not None
        if there and self._damage.check_key(leased.key, by=self._found_by):
            leased = self._lease({key: 0}, holder)[key]
        return leased

    def _put(self, key: StorageKey, piece: BlobChunk) -> bool:
        """Write a blob; return whether it is stored: not where a damaged one lies under the key."""
        try:
            if isinstance(piece.source, Path):
                size = self._storage.write_file(key, piece.source)
            else:
                size = self._storage.write(key, [piece.source])
        except DigestMismatch:
            if self._damage.check_key(key, by=self._found_by):
                return False
            raise
        if size != piece.size and self._damage.check_key(key, by=self._found_by):
            return False
        if size != piece.size:
            raise DigestMismatch(
                f"{size} bytes were stored, but {piece.size} were announced.",
                where=key.digest,
                hint="The file changed while it was stored. Try again; if the error persists, report it.",
            )
        return True


def _check_accepted(session: Session, keys: Iterable[StorageKey]) -> None:
    """Refuse bytes that a forced deletion removed; the rows of these stay deleted, so nobody else needs to look.

    Raises:
        DigestRefused: One of them is refused.
    """
    found = TombstoneStore(session).refused_of((key.kind, key.digest) for key in keys)
    if found:
        (_, digest), tombstone = found
        # The name, the person and the reason are for those who may read the model.
        known = readable().covers(tombstone.model or "")
        shown = f"{tombstone.name} {tombstone.origin}" if known else "a version was deleted by force"
        raise DigestRefused(
            f"{digest} cannot be stored: {shown}",
            where=digest,
            hint=f"If these bytes may be stored again, ask the server's operator: pt2hub admin accept {digest} --reason WHY",
            context={"digest": digest} | ({"reason": tombstone.reason, "at": tombstone.at} if known else {}),
        )


def _gone(key: StorageKey) -> BlobGone:
    return BlobGone(
        "The blob was deleted while it was being stored: its lease expired",
        where=key.digest,
        hint="Store it again.",
    )
