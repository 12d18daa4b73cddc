"""Bytes that go into the storage, and the rows that keep a collector from what is needed.

Whoever writes bytes first leases them, in a transaction of its own; writes them; then notes them as stored, in
another one. Only then may something refer to them. Each step may be the last one of a process that dies: the next
holder of the same bytes writes the same generation, which is safe since nothing is ever overwritten, and where nobody
comes back the lease runs out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.errors import BlobGone, DigestMismatch
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs import BlobStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.blobs import Leased

_TRIES = 3
"""Bytes are written again when a collector took them meanwhile, which takes a lease that ran out."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes to store.

    Attributes:
        key: Their name, without a generation.
        size: Their number.
        source: They themselves, or a file of them.
    """

    key: StorageKey
    size: int
    source: bytes | Path


class BlobService:
    """Storing bytes so that they stay until they are referred to."""

    def __init__(self, sessions: Sessions, storage: Storage) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            storage: Takes the bytes.
        """
        self._sessions = sessions
        self._storage = storage

    def store(self, pieces: Sequence[Piece], *, holder: str) -> None:
        """Stores bytes, in the order given, and leases them; what is stored already is only looked for.

        It is looked for although the row says that it is there: what an operator lost heals that way.

        Args:
            pieces: What to store.
            holder: Who is about to refer to them: `build:<id>:<attempt>` and the like.

        Raises:
            DigestMismatch: Bytes have another digest or size.
            BlobGone: A collector took them again and again.
        """
        left = {piece.key: piece for piece in pieces}
        for _ in range(_TRIES):
            if not left:
                return
            leased = self._lease({key: piece.size for key, piece in left.items()}, holder)
            for key, piece in left.items():
                self._put(leased[key].key, piece)
            written = {each.key: left[key].size for key, each in leased.items() if not each.stored}
            gone = self._confirm(written, holder)
            left = {key: piece for key, piece in left.items() if key in gone}
        if left:
            raise _gone(next(iter(left)))

    def write(
        self, key: StorageKey, chunks: Iterable[bytes], *, holder: str, limit: int | None = None
    ) -> int:
        """Stores bytes that arrive, whose number is not known before, and leases them.

        Args:
            key: Their name, without a generation.
            chunks: The bytes; errors that it raises pass through.
            holder: Who is about to refer to them.
            limit: The most bytes that are taken.

        Returns:
            The number of bytes.

        Raises:
            DigestMismatch: The bytes have another digest.
            TooLarge: There are more than `limit`.
            BlobGone: The lease ran out before they had arrived, and a collector took them.
        """
        leased = self._lease({key: 0}, holder)[key]
        size = self._storage.write(leased.key, chunks, limit=limit)
        if not leased.stored:
            self.confirm(leased.key, size, holder=holder)
        return size

    def hold(self, key: StorageKey, size: int, *, holder: str) -> tuple[StorageKey, bool]:
        """Leases bytes that somebody else writes, and looks whether they are there already.

        Args:
            key: Their name, without a generation.
            size: Their number.
            holder: Who writes them or is about to refer to them.

        Returns:
            Their name with the generation to write, and whether they lie there, verified and noted as stored.

        Raises:
            DigestMismatch: They lie there, in another number.
            BlobGone: A collector takes them at this moment; the next try has a new generation.
        """
        leased = self._lease({key: size}, holder)[key]
        found = self._storage.size(leased.key)
        if found is None:
            return leased.key, False
        if found != size:
            raise DigestMismatch(
                f"What is stored under this digest has {found} bytes, not {size}.",
                where=key.digest,
                hint="Take digest and size of the same bytes; where they are right, the storage is damaged.",
            )
        if not leased.stored:
            self.confirm(leased.key, size, holder=holder)
        return leased.key, True

    def confirm(self, key: StorageKey, size: int, *, holder: str) -> None:
        """Notes that bytes were written and verified.

        Args:
            key: Their name with the generation that `hold` gave.
            size: Their number.
            holder: Who holds them.

        Raises:
            BlobGone: The lease ran out meanwhile, and a collector took them: they must be written again.
        """
        if self._confirm({key: size}, holder):
            raise _gone(key)

    def tidy(self) -> None:
        """Drops leases whose time is over."""
        with self._sessions.begin() as session:
            BlobStore(session).drop_expired()

    def _lease(self, sizes: Mapping[StorageKey, int], holder: str) -> dict[StorageKey, Leased]:
        with self._sessions.begin() as session:
            leased = BlobStore(session).lease(sizes, holder)
        rest = {key: size for key, size in sizes.items() if key not in leased}
        if rest:  # in another transaction: rows are locked in one order, and more firmly than before
            with self._sessions.begin() as session:
                leased |= BlobStore(session).revive(rest, holder)
        return leased

    def _confirm(self, sizes: Mapping[StorageKey, int], holder: str) -> set[StorageKey]:
        if not sizes:
            return set()
        with self._sessions.begin() as session:
            return BlobStore(session).confirm(sizes, holder)

    def _put(self, key: StorageKey, piece: Piece) -> None:
        if isinstance(piece.source, Path):
            size = self._storage.write_file(key, piece.source)
        else:
            size = self._storage.write(key, [piece.source])
        if size != piece.size:
            raise DigestMismatch(
                f"{size} bytes are stored where {piece.size} were announced.",
                where=key.digest,
                hint="The file changed while it was stored. Do it again; if it stays so, report it.",
            )


def _gone(key: StorageKey) -> BlobGone:
    return BlobGone(
        "The bytes were deleted while they were stored: they took longer than their lease lasts",
        where=key.digest,
        hint="Store them again.",
    )
