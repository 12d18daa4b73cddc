"""A collector as pt2hub will have one, in SQL and step by step, so that tests can stop it between two steps.

See `pt2hub.server.db.stores.blobs.blobs` for what it must do; nothing of the services is used here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from pt2hub.domain.digests import Digest
from pt2hub.domain.storage import FIRST
from pt2hub.server.blobs.keys import StorageKey

_LIVE = "state IN ('pending', 'stored') AND changed_at < now() - make_interval(secs => %s)"
_LOCK = f"SELECT FROM blobs WHERE {_LIVE} ORDER BY kind, digest FOR UPDATE"
_MARK = f"""
    UPDATE blobs SET state = 'deleting', changed_at = now() WHERE {_LIVE}
    AND NOT EXISTS (
        SELECT FROM blob_references AS r WHERE (r.kind, r.digest) = (blobs.kind, blobs.digest))
    AND NOT EXISTS (
        SELECT FROM blob_leases AS l
        WHERE (l.kind, l.digest) = (blobs.kind, blobs.digest) AND l.pending_until > now())"""
_TAKEN = "SELECT kind, digest, generation FROM blobs WHERE state = 'deleting'"
_FINISH = """
    UPDATE blobs SET state = 'deleted', changed_at = now()
    WHERE kind = %s AND digest = %s AND generation = %s AND state = 'deleting'"""
_ROWS = "SELECT kind, digest, generation, state FROM blobs"


@dataclass
class Collector:
    """A collector over a storage in a directory.

    Attributes:
        connection: To the database; commits by itself.
        root: The storage's directory.
        grace: Seconds for which a blob must not have changed.
        taken: What the first step took for the others.
    """

    connection: psycopg.Connection
    root: Path
    grace: float = 0.0
    taken: list[StorageKey] = field(default_factory=list)

    def mark(self) -> None:
        """Step 1; finds again what an earlier one took before it died."""
        with self.connection.transaction():
            self.connection.execute(_LOCK, [self.grace])
            self.connection.execute(_MARK, [self.grace])
            self.taken = [_key(*row) for row in self.connection.execute(_TAKEN)]

    def delete(self) -> None:
        """Step 2."""
        for key in self.taken:
            (self.root / key.path).unlink(missing_ok=True)

    def finish(self) -> None:
        """Step 3."""
        for key in self.taken:
            self.connection.execute(_FINISH, [key.kind, key.digest, key.generation])
        self.taken = []

    def collect(self) -> None:
        """All three steps."""
        self.mark()
        self.delete()
        self.finish()

    def sweep(self) -> None:
        """Deletes objects that are dead for good: left behind by a crash, or written after a lease had run out."""
        rows = {_key(*row[:3]): row[3] for row in self.connection.execute(_ROWS)}
        now = {(key.kind, key.digest): key for key in rows}
        for key in self.objects():
            row = now.get((key.kind, key.digest))
            if row is None:
                continue
            dead = (key.generation or FIRST) < (row.generation or FIRST)
            if dead or (key == row and rows[row] in ("deleting", "deleted")):
                (self.root / key.path).unlink(missing_ok=True)

    def objects(self) -> list[StorageKey]:
        """Every object, with its generation."""
        paths = [path for path in self.root.rglob("*") if path.is_file()]
        keys = [StorageKey.from_path(path.relative_to(self.root).as_posix()) for path in paths]
        return sorted(key for key in keys if key is not None)


def _key(kind: Any, digest: str, generation: int) -> StorageKey:
    return StorageKey(kind, Digest(digest), generation)
