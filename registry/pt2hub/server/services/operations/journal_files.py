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
from pt2hub.server.db.stores.operations.journal_position import BEGINNING, JournalPosition
from pt2hub.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pt2hub.server.blobs.ports import NamedObjects

FOLDER = "journal/"
FORMAT = 1
"""A reader refuses files of a later format; fields may be added within one."""
MAX_FILES = 200
"""More files of less than `MERGED_BYTES` are merged into one."""
MERGED_BYTES = 8 << 20
"""A larger file is merged again only when something in it was deleted."""
_TRIES = 5
REMOVABLE = ("label", "derivation", "role", "trust_rule", "retention_policy")
"""Kinds that are removed without a tombstone: the journal remembers their names."""
_BURIED = (
    *("model", "version", "build", "alias", "alias_move", "policy"),
    *("evaluation", "report", "environment", "audit_entry"),
)
"""Kinds that go with what has a tombstone, or never; those of a newer pt2hub are remembered."""
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

    def add(
        self,
        entries: Iterable[JournalEntry],
        *,
        position: JournalPosition = BEGINNING,
        confirm: Callable[[], object] = lambda: None,
    ) -> JournalFile:
        """Store entries as the newest batch.

        Args:
            position: Where the journal ends for this database: a storage may list its own files late.
            confirm: Raises where this process is not the writer any more. It is asked before each number is tried: a process
                that was frozen meanwhile finds its number taken, and must not put what it read behind what was written since.

        Raises:
            StorageUnavailable: The storage does not answer.
            StorageFull: It has no room.
        """
        data = _to_bytes(entries, position.nonce)
        last = self.last()
        number = max(last, position.number if last else 0) + 1
        confirm()
        while not self._storage.create_object(JournalFile(number, number).path, data):
            number += 1  # written by a process that died before it could say so
            confirm()
        return JournalFile(number, number, len(data))

    def last(self) -> int:
        """Return the number of the newest batch, 0 where there is none."""
        return max((file.last for file in self._files()), default=0)

    def count(self) -> int:
        """Return how many files there are."""
        return len(self._files())

    def find_lost_end(self, position: Callable[[], JournalPosition | None]) -> dict[str, str]:
        """Return the path of the newest batches if they are missing, with what is wrong: `read` notices gaps only.

        Args:
            position: Reads the position, before the files are listed.
        """
        known, last = position() or BEGINNING, 0
        for _ in range(_TRIES):  # a storage may list late, and a merge changes what is listed
            last = self.last()
            if known.number <= last:
                return {}
        lost = JournalFile(last + 1, known.number)
        return {lost.path: str(_missing(lost))}

    def find_foreign(self, position: Callable[[], JournalPosition | None]) -> JournalFile | None:
        """Return a file that another database wrote behind the end of this one's journal.

        Files of pt2hub 0.2 and earlier do not say whose they are, and count as this database's.

        Args:
            position: Reads the position. Only files that were listed before are compared with it: those that this database wrote
                are known to it by then, or carry the nonce of its next batch.
        """
        files = self._files()
        known = position()
        if known is None:
            return None
        behind = [file for file in files if file.last > known.number]
        return next((file for file in behind if self._nonce(file.path) not in ("", known.nonce)), None)

    def read(self, unreadable: dict[str, str]) -> list[JournalEntry]:
        """Return the newest entry of everything that the journal names, also of what is gone.

        Args:
            unreadable: Takes the paths of damaged and missing files, and what is wrong with them.
        """
        for attempt in range(_TRIES):
            with suppress(NotFound):  # another process has merged it meanwhile
                files = _uncovered(self._files())
                gaps = list(_gaps(files))
                if gaps and attempt < _TRIES - 1:
                    continue  # listed while another process merged: the list has neither the old files nor the new one
                damaged: dict[str, str] = {}
                entries = self._fold(files, damaged)
                unreadable |= damaged | {gap.path: str(_missing(gap)) for gap in gaps}
                return entries
        raise StorageUnavailable("The journal changes too fast to be read.", where=FOLDER, hint="Try again.")

    def give_up(self, paths: Iterable[str]) -> None:
        """Replace damaged and missing files by empty ones: what they alone said is lost, and the others can be merged again.

        Args:
            paths: As `read` names them. Files of a newer pt2hub stay: it can read them.
        """
        for path in paths:
            if not self._is_newer(path):
                self._storage.delete_object(path)
                self._storage.create_object(path, _to_bytes(()))

    def is_empty(self) -> bool:
        """Return whether there is no journal."""
        return not self._files()

    def merge(self, max_files: int = MAX_FILES, *, nonce: str = "") -> bool:
        """Merge small files where there are many; return whether any were.

        What has been deleted then also leaves the older files: a deleted spec may have held personal data. That it was
        removed stays, by its name, unless a tombstone says it: a backup that is restored later may still have it.

        Args:
            max_files: How many small files may stay. One always does: it would be merged into a file of its own name.
            nonce: That of the database's next batch.

        Raises:
            BadResponse: A file is damaged or missing; all stay, for a reindex to name it.
        """
        files = self._files()
        current = _uncovered(files)
        if gap := next(_gaps(current), None):
            raise _missing(gap)
        self._delete(set(files) - set(current))  # of a merge that was cut off
        small = current[_first_small(current) :]
        if len(small) <= max(max_files, 1):
            return False
        entries = self._fold(small)
        if len(small) < len(current) and any(entry.document is None for entry in entries):
            small, entries = current, self._fold(current)
        if len(small) == len(current):
            entries = _without_forgotten(entries)
        merged = JournalFile(small[0].first, small[-1].last)
        self._storage.create_object(merged.path, _to_bytes(entries, nonce))
        self._delete(small)
        return True

    def _is_newer(self, path: str) -> bool:
        try:
            return int(self._head(path)["journal"]) > FORMAT
        except (NotFound, ValueError, LookupError, TypeError):
            return False

    def _nonce(self, path: str) -> str:
        """Return what a file says whose it is; "" where it says nothing, is damaged or was merged meanwhile."""
        try:
            return str(self._head(path).get("nonce", ""))
        except (NotFound, ValueError, AttributeError):
            return ""

    def _head(self, path: str) -> Any:
        return json.loads(self._storage.read_object(path).partition(b"\n")[0])

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


def _gaps(files: list[JournalFile]) -> Iterator[JournalFile]:
    """Yield the numbers that no file has, although each batch takes the next one."""
    reached = 0
    for file in files:
        if file.first > reached + 1:
            yield JournalFile(reached + 1, file.first - 1)
        reached = max(reached, file.last)


def _without_forgotten(entries: list[JournalEntry]) -> list[JournalEntry]:
    """Leave out what is gone, but for removals from what still exists, given the newest entry of everything."""
    present = {(entry.kind, *entry.key) for entry in entries if entry.document is not None}
    return [entry for entry in entries if entry.document is not None or _is_remembered(entry, present)]


def _is_remembered(entry: JournalEntry, present: set[tuple[Any, ...]]) -> bool:
    if entry.removed_at is None or entry.kind in _BURIED:
        return False
    if entry.kind in ("label", "derivation"):
        model, number, *_ = entry.key
        return (("model", model) if number is None else ("version", model, number)) in present
    if entry.kind == "retention_policy" and "/" in entry.key[0]:
        return ("model", entry.key[0]) in present
    return True


def _first_small(files: list[JournalFile]) -> int:
    """Return where the run of small files at the end begins."""
    large = [number for number, file in enumerate(files) if file.size >= MERGED_BYTES]
    return large[-1] + 1 if large else 0


def _to_bytes(entries: Iterable[JournalEntry], nonce: str = "") -> bytes:
    body = b"\n".join(canonical_json(_to_line(entry)) for entry in entries)
    head = {"journal": FORMAT, "pt2hub": __version__, "digest": digest_bytes(body)}
    if nonce:
        head["nonce"] = nonce
    return canonical_json(head) + b"\n" + body


def _to_line(entry: JournalEntry) -> dict[str, Any]:
    line = {"kind": entry.kind, "key": entry.key, "document": entry.document}
    return line if entry.removed_at is None else line | {"removed_at": entry.removed_at}


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
        return [
            JournalEntry(line["kind"], tuple(line["key"]), line["document"], line.get("removed_at"))
            for line in lines
        ]
    except (ValueError, LookupError, TypeError) as error:
        raise _damaged(path) from error


def _missing(gap: JournalFile) -> BadResponse:
    return BadResponse(
        "A file of the journal is missing", where=gap.path, hint="Restore it from a copy of the storage."
    )


def _damaged(path: str) -> BadResponse:
    return BadResponse(
        "A file of the journal is damaged",
        where=path,
        hint="Restore it from a copy of the storage.",
    )
