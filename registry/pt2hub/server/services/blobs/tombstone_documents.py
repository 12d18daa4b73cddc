"""Documents of tombstones in storage, so that a rebuild of the database does not bring back what was deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes
from pt2hub.domain.principals import Principal
from pt2hub.errors import BadResponse, BlobDamaged, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.operations.reindex_state import ReindexState
from pt2hub.server.db.stores.retention.tombstones import Tombstone, TombstoneStore
from pt2hub.server.services.blobs.documents import read_bytes, read_json

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions

_SCHEMA = 1
_BATCH = 100


@dataclass(frozen=True, slots=True)
class _Document:
    """A tombstone as storage has it."""

    schema: int
    kind: str
    name: str
    reason: str
    by: Principal | None
    model: str | None
    number: int | None
    forced: bool
    artifacts: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    at: str
    builds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Acceptance:
    """Bytes that may be stored again, whatever tombstones up to that time say."""

    schema: int
    accepted: Digest
    reason: str
    by: Principal | None
    at: str


class TombstoneDocuments:
    """Writes and reads the documents of tombstones, and of digests that were accepted again.

    The row comes first, in the transaction of the deletion; maintenance repeats a write that failed.
    """

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        self._sessions = sessions
        self._storage = storage

    def write(self) -> None:
        """Write the documents that storage does not have yet; while a reindex is due, they wait for it.

        Raises:
            StorageUnavailable: The storage does not answer; the next call goes on.
        """
        while True:
            with self._sessions.begin() as session:
                if ReindexState(session).is_due():  # the storage may be another server's
                    return
                found = TombstoneStore(session).unwritten(limit=_BATCH)
            for number, tombstone in found:
                data = canonical_json({"schema": _SCHEMA, **encode(tombstone)})
                digest = digest_bytes(data)
                self._storage.write(StorageKey("tombstones", digest), [data])
                with self._sessions.begin() as session:
                    TombstoneStore(session).record_document(number, digest)
            if len(found) < _BATCH:
                return

    def accept(self, digest: Digest, *, reason: str, by: Principal | None, at: str) -> None:
        """Write that a digest may be stored again.

        Args:
            at: ISO 8601, UTC, by the clock of the database, as for tombstones.

        Raises:
            StorageUnavailable: The storage does not answer.
        """
        data = canonical_json(encode(_Acceptance(_SCHEMA, digest, reason, by, at)))
        self._storage.write(StorageKey("tombstones", digest_bytes(data)), [data])

    def check(self) -> dict[str, str]:
        """Read the documents again; write those anew that are damaged or missing and that the database has.

        Returns:
            Paths of those that were damaged or missing, with what was wrong.

        Raises:
            StorageUnavailable: The storage does not answer.
        """
        with self._sessions.begin() as session:
            known = TombstoneStore(session).documents()
            may_write = not ReindexState(session).is_due()
        found: dict[str, str] = {}
        for digest in sorted({*known, *(key.digest for key in self._storage.keys("tombstones"))}):
            key = StorageKey("tombstones", digest)
            problem = self._problem(key) and self._problem(key)  # read twice: a disk may err
            if not problem:
                continue
            found[key.path] = problem
            if digest in known and may_write:  # else nothing would take its place
                self._storage.quarantine(key)
                with self._sessions.begin() as session:
                    TombstoneStore(session).forget_document(digest)
        self.write()
        return found

    def _problem(self, key: StorageKey) -> str:
        try:
            read_bytes(self._storage, key)
        except (BlobDamaged, NotFound, TooLarge) as error:
            return error.message
        return ""

    def restore(self) -> dict[str, str]:
        """Add the tombstones that only storage has; return the digests of unreadable ones, with reasons."""
        unreadable: dict[str, str] = {}
        tombstones: dict[Digest, Tombstone] = {}
        accepted: dict[Digest, str] = {}
        for key in self._storage.keys("tombstones"):
            try:
                found = _read(read_json(self._storage, key), where=key.digest)
            except (BadResponse, BlobDamaged, NotFound, TooLarge) as exc:
                unreadable[key.digest] = str(exc)
                continue
            if isinstance(found, Tombstone):
                tombstones[key.digest] = found
            else:
                accepted[found.accepted] = max(found.at, accepted.get(found.accepted, ""))
        for document, tombstone in tombstones.items():
            with self._sessions.begin() as session:
                TombstoneStore(session).restore(tombstone, document, accepted)
        with self._sessions.begin() as session:
            TombstoneStore(session).accept_until(accepted)
        return unreadable


def _read(document: Any, *, where: str) -> Tombstone | _Acceptance:
    if isinstance(document, dict) and "accepted" in document:
        return decode(_Acceptance, document, where=where)
    read = decode(_Document, document, where=where)
    return Tombstone(**{name: getattr(read, name) for name in Tombstone.__dataclass_fields__})
