"""The blob collector step by step, so that tests can stop it between two steps."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path

import psycopg

from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.blobs.garbage import Garbage
from pt2hub.server.services.blobs.collection import BlobCollection


@dataclass(eq=False)
class Collector:
    """A collector without a grace over a storage in a directory.

    Attributes:
        connection: To the database, whose address it uses too.
        root: The storage's directory.
        taken: What the first step took for the others.
    """

    connection: psycopg.Connection
    root: Path
    taken: list[Garbage] = field(default_factory=list)

    @cached_property
    def steps(self) -> BlobCollection:
        """The steps, over connections of their own."""
        engine = engines.create(self.connection.info.dsn)
        weakref.finalize(self, engine.dispose)
        return BlobCollection(engines.Sessions(engine), LocalStorage(self.root), grace=timedelta())

    def mark(self) -> None:
        """Step 1; finds again what an earlier one took before it died."""
        for _ in self.steps.mark():
            pass
        self.taken = [item for batch in self.steps.marked() for item in batch]

    def delete(self) -> None:
        """Step 2."""
        self.steps.remove(self.taken)

    def finish(self) -> None:
        """Step 3."""
        self.steps.finish(self.taken)
        self.taken = []

    def collect(self) -> None:
        """All three steps."""
        self.mark()
        self.delete()
        self.finish()

    def sweep(self) -> None:
        """Deletes objects that are dead for good: left behind by a crash, or written after a lease had run out."""
        for _ in self.steps.sweep():
            pass

    def objects(self) -> list[StorageKey]:
        """Every object, with its generation."""
        paths = [path for path in self.root.rglob("*") if path.is_file()]
        keys = [StorageKey.from_path(path.relative_to(self.root).as_posix()) for path in paths]
        return sorted(key for key in keys if key is not None)
