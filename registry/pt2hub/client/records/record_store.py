"""Version records that bundles brought, as files next to the cache."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pt2hub.client.records.version_records import parse_record
from pt2hub.domain.digests import digest_bytes, hex_of
from pt2hub.errors import CorruptArchive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.client.records.version_records import VersionRecord

_SHORT = 32
"""Digits of the digests that name folders and files."""


class RecordStore:
    """The newest record of each version of one server. A damaged file counts as none.

    Args:
        cache: The cache's folder.
        server: Address of the server; records of others are kept apart.
    """

    def __init__(self, cache: Path, server: str) -> None:
        self._cache = cache
        self._folder = cache / "records" / _name(server)

    def keep(self, record: VersionRecord) -> None:
        """Store a record, unless a later one of the same version is known."""
        known = self.find(record.version.model, record.version.number)
        if known and known.exported_at > record.exported_at:
            return
        from pt2hub.places import make_folder

        name = self._path(record.version.model, record.version.number)
        for path in (self._cache, self._folder.parent, self._folder, name.parent):
            make_folder(path, 0o700)
        temporary = name.with_suffix(f".{os.urandom(4).hex()}")
        try:
            temporary.touch(mode=0o600)
            temporary.write_bytes(record.as_bytes())
            temporary.replace(name)
        finally:
            temporary.unlink(missing_ok=True)

    def find(self, model: str, number: int) -> VersionRecord | None:
        """Return the record of a version, or None."""
        return next(iter(self._read([self._path(model, number)])), None)

    def of_model(self, model: str) -> list[VersionRecord]:
        """Return the records of a model's versions, newest export first."""
        paths = sorted((self._folder / _name(model)).glob("*.json"))
        return sorted(self._read(paths), key=lambda item: item.exported_at, reverse=True)

    def every(self) -> Iterator[VersionRecord]:
        """Yield all records."""
        yield from self._read(sorted(self._folder.glob("*/*.json")))

    def _path(self, model: str, number: int) -> Path:
        return self._folder / _name(model) / f"{number}.json"

    def _read(self, paths: list[Path]) -> Iterator[VersionRecord]:
        for path in paths:
            with suppress(OSError, CorruptArchive):
                yield parse_record(path.read_bytes(), str(path))


def _name(text: str) -> str:
    return hex_of(digest_bytes(text.encode()))[:_SHORT]
