"""The end of the journal as this database knows it: what lies behind it, another database wrote."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlalchemy.exc import NotSupportedError, ProgrammingError

from pt2hub.domain.digests import digest_bytes
from pt2hub.server.db.stores.operations.settings import SettingStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_SETTING = "journal_position"
# A copy has the settings of its original: what tells them apart is where they live.
_OID = text("SELECT oid FROM pg_database WHERE datname = current_database()")
_DATABASE = text(
    "SELECT system_identifier || ':' || pg_database.oid FROM pg_control_system(), pg_database "
    "WHERE datname = current_database()"
)


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """The end of the journal.

    Attributes:
        number: Number of the last batch that this database wrote or a reindex read.
        nonce: What the next batch carries, and no batch of another database, also of a copy. It is committed before that batch is
            written, so that a batch of a process that died before its commit is recognized.
    """

    number: int
    nonce: str


BEGINNING = JournalPosition(0, "")
"""The position before anything was written."""


class JournalPositionStore:
    """The position."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings = SettingStore(session)

    def get(self, *, lock: bool = False) -> JournalPosition | None:
        """Return the position; None before the first batch that this release writes.

        Args:
            lock: Let no other process change it until the transaction ends.
        """
        value = self._settings.get(_SETTING, lock=lock)
        if value is None:
            return None
        number, _, seed = value.partition(" ")
        return JournalPosition(int(number), digest_bytes(f"{seed} {self._database()}".encode())[-16:])

    def advance(self, number: int) -> None:
        """Record that a batch was written; the next one carries another nonce."""
        self._settings.put(_SETTING, f"{number} {secrets.token_hex(8)}")

    def accept(self, number: int) -> None:
        """Record that the database has what batches up to this one say."""
        # Of several processes that start, one sets it: a later one must not take back a batch that was written since.
        self._settings.add(_SETTING, f"{number} {secrets.token_hex(8)}")
        before, _, seed = (self._settings.get(_SETTING, lock=True) or "").partition(" ")
        if int(before) < number:
            self._settings.put(_SETTING, f"{number} {seed}")

    def forget(self) -> None:
        """Begin anew, for a storage that has no journal."""
        self._settings.remove(_SETTING)

    def _database(self) -> str:
        """Return what identifies the database; without the server's identifier where its operator does not show it."""
        try:
            with self._session.begin_nested():
                return str(self._session.scalar(_DATABASE))
        except (ProgrammingError, NotSupportedError):
            # No other errors: a statement that was cancelled must not change the nonce for one batch.
            return str(self._session.scalar(_OID))
