"""The journal's files in storage: numbered batches of entries, merged so that there are few."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.errors import BadResponse, NotFound, StorageUnavailable
from pt2hub.server.db.stores.operations.journal import JournalEntry
from pt2hub.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.server.blobs.ports import NamedObjects

FOLDER = "journal/"
FORMAT = 1
"""A reader refuses files of a later format; fields may be added within one."""
MAX_FILES = 200
"""More files of less than `MERGED_BYTES` are merged into one."""
MERGED_BYTES = 8 << 20
"""A larger file is merged again only when something in it was deleted."""
_TRIES = 5
_NAME = re.compile(r"journal/(\d{12})-(\d{12})\.jsonl")


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A file with the batches `first` to `last`."""

    first: int
    last: int
    size: int = 0

    @property
    def path(self) -> str:
        """Its path in the storage; names sort as the batches were written."""
        return f"{FOLDER}{self.first:012}-{self.last:012}.jsonl"

    def covers(self, other: JournalFile) -> bool:
        """Return whether it was merged from the other one."""
        return self != other and self.first <= other.first and other.last <= self.last


class JournalFiles:
    """Reads, adds and merges files. Several processes may; nothing is ever overwritten."""

    def __init__(self, storage: NamedObjects) -> None:
        self._storage = storage

    def add(self, entries: Iterable[JournalEntry]) -> int:
        """Store entries as the newest batch; return how many files there are.

        Raises:
            StorageUnavailable: The storage does not answer.
            StorageFull: It has no room.
        """
        data = _to_bytes(entries)
        files = self._files()
        number = max((file.last for file in files), default=0) + 1
        while not self._storage.create_object(JournalFile(number, number).path, data):
            number += 1  # written by a process that died before it could say so
        return len(files) + 1

    def read(self, unreadable: dict[str, str]) -> list[JournalEntry]:
        """Return the newest entry of everything that the journal names, without what is gone.

        Args:
            unreadable: Takes the paths of damaged files, and what is wrong with them.
        """
        for _ in range(_TRIES):
            with suppress(NotFound):  # another process has merged it meanwhile
                entries = self._fold(_uncovered(self._files()), unreadable)
                return [entry for entry in entries if entry.document is not None]
        raise StorageUnavailable("The journal changes too fast to be read.", where=FOLDER, hint="Try again.")

    def is_empty(self) -> bool:
        """Return whether there is no journal."""
        return not self._files()

    def merge(self, max_files: int = MAX_FILES) -> bool:
        """Merge small files where there are many; return whether any were.

        What has been deleted then also leaves the older files: a deleted spec may have held personal data.

        Args:
            max_files: How many small files may stay. One always does: it would be merged into a file of its own name.
        """
        files = self._files()
        current = _uncovered(files)
        self._delete(set(files) - set(current))  # of a merge that was cut off
        small = current[_first_small(current) :]
        if len(small) <= max(max_files, 1):
            return False
        entries = self._fold(small)
        if len(small) < len(current) and any(entry.document is None for entry in entries):
            small, entries = current, self._fold(current)
        if len(small) == len(current):
            entries = [entry for entry in entries if entry.document is not None]
        merged = JournalFile(small[0].first, small[-1].last)
        self._storage.create_object(merged.path, _to_bytes(entries))
        self._delete(small)
        return True

    def _delete(self, files: Iterable[JournalFile]) -> None:
        for file in files:
            self._storage.delete_object(file.path)

    def _files(self) -> list[JournalFile]:
        named = ((_NAME.fullmatch(path), size) for path, size in self._storage.list_objects(FOLDER))
        return sorted(
            (JournalFile(int(match[1]), int(match[2]), size) for match, size in named if match),
            key=lambda file: (file.first, file.last),
        )

    def _fold(
        self, files: Iterable[JournalFile], unreadable: dict[str, str] | None = None
    ) -> list[JournalEntry]:
        """Return the newest entry of everything, in the order in which it was first named.

        Args:
            unreadable: Takes damaged files, which are errors where omitted.
        """
        newest: dict[tuple[Any, ...], JournalEntry] = {}
        for file in files:
            try:
                entries = _from_bytes(self._storage.read_object(file.path), file.path)
            except BadResponse as error:
                if unreadable is None:
                    raise
                unreadable[file.path] = str(error)
            else:
                newest.update({(entry.kind, *entry.key): entry for entry in entries})
        return list(newest.values())


def _uncovered(files: list[JournalFile]) -> list[JournalFile]:
    return [file for file in files if not any(other.covers(file) for other in files)]


def _first_small(files: list[JournalFile]) -> int:
    """Return where the run of small files at the end begins."""
    large = [number for number, file in enumerate(files) if file.size >= MERGED_BYTES]
    return large[-1] + 1 if large else 0


def _to_bytes(entries: Iterable[JournalEntry]) -> bytes:
    lines = (
        canonical_json({"kind": entry.kind, "key": entry.key, "document": entry.document})
        for entry in entries
    )
    body = b"\n".join(lines)
    head = {"journal": FORMAT, "pt2hub": __version__, "digest": digest_bytes(body)}
    return canonical_json(head) + b"\n" + body


def _from_bytes(data: bytes, path: str) -> list[JournalEntry]:
    """Return the entries of a file.

    Raises:
        BadResponse: It is damaged, or a newer pt2hub wrote it.
    """
    first, _, body = data.partition(b"\n")
    try:
        head = json.loads(first)
        if head["journal"] > FORMAT:
            raise BadResponse(
                f"pt2hub {head.get('pt2hub')} wrote the journal in a newer format",
                where=path,
                hint="Run this command with the newer pt2hub.",
            )
        if head["digest"] != digest_bytes(body):
            raise _damaged(path)
        lines = map(json.loads, body.split(b"\n") if body else ())
        return [JournalEntry(line["kind"], tuple(line["key"]), line["document"]) for line in lines]
    except (ValueError, LookupError, TypeError) as error:
        raise _damaged(path) from error


def _damaged(path: str) -> BadResponse:
    return BadResponse(
        "A file of the journal is damaged",
        where=path,
        hint="Restore it from a copy of the storage, or remove it: what it alone says is lost then.",
    )
