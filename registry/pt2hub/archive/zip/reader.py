"""Members of a checked archive, read in place."""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from pt2hub.archive.zip import records
from pt2hub.archive.zip.validation import REBUILD, Entry, Limits, printable_name, validate
from pt2hub.domain.artifacts import Member
from pt2hub.domain.digests import CHUNK, digest_chunks
from pt2hub.errors import CorruptArchive, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.domain.artifacts import Constants

LITERALS = "data/literals.safetensors"
"""Path of literal constants below the code layer's root folder.

Not below `extra`, where PyTorch's Python loader reads every file as text and fails on bytes that are none (torch 2.13).
"""
FORMER_LITERALS = "extra/literals.safetensors"
"""Path in artifacts of 0.1 and early 0.2."""


class Archive:
    """A zip that passed `validate`; every read checks size and CRC.

    Attributes:
        entries: The members, in the order of the central directory.
    """

    def __init__(self, file: BinaryIO, *, limits: Limits | None = None) -> None:
        self._file = file
        self.entries = validate(file, limits=limits or Limits())
        self._by_name = {entry.name: entry for entry in self.entries}

    def entry(self, name: str) -> Entry:
        """Return the member with a name.

        Raises:
            NotFound: There is none.
        """
        if name not in self._by_name:
            raise NotFound("the archive has no such member", where=printable_name(name))
        return self._by_name[name]

    def read(self, name: str) -> bytes:
        """Return a member's bytes.

        Raises:
            NotFound: The member does not exist.
            CorruptArchive: Its bytes do not have the size or the CRC that the archive claims.
        """
        return b"".join(self.chunks(self.entry(name)))

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """Yield a member's bytes in chunks; the last one is followed by the check.

        Raises:
            CorruptArchive: The bytes do not have the size or the CRC that the archive claims.
        """
        crc = size = 0
        for chunk in self._inflate(entry) if entry.method == records.DEFLATED else self._raw(entry):
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
            if size > entry.size:
                break
            yield chunk
        if (size, crc) != (entry.size, entry.crc):
            raise _damaged_member(entry)

    def _raw(self, entry: Entry) -> Iterator[bytes]:
        at, end = entry.data_offset, entry.data_offset + entry.compressed_size
        while at < end:
            self._file.seek(at)
            chunk = self._file.read(min(CHUNK, end - at))
            if not chunk:
                raise CorruptArchive("the archive is truncated", where=printable_name(entry.name))
            at += len(chunk)
            yield chunk

    def _inflate(self, entry: Entry) -> Iterator[bytes]:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            for raw in self._raw(entry):
                pending = raw
                while pending:
                    yield inflater.decompress(pending, CHUNK)
                    pending = inflater.unconsumed_tail
            yield inflater.flush()
        except zlib.error as error:
            raise _damaged_member(entry) from error
        if not inflater.eof or inflater.unused_data:
            raise _damaged_member(entry)


@contextmanager
def open_archive(path: Path, *, limits: Limits | None = None) -> Iterator[Archive]:
    """Open and check an archive.

    Raises:
        CorruptArchive: See `validate`.
    """
    with path.open("rb") as file:
        yield Archive(file, limits=limits)


def read_member(path: Path, name: str) -> bytes:
    """Return a member's bytes.

    Raises:
        CorruptArchive: The archive or the member is damaged.
        NotFound: The member does not exist.
    """
    with open_archive(path) as archive:
        return archive.read(name)


def read_literals(constants: Constants, code: Path) -> bytes | None:
    """Return the constants that the export lifted from the model's source; None if there are none.

    Returns:
        A safetensors file's bytes.

    Raises:
        CorruptArchive: The code layer is damaged.
        NotFound: It lacks them.
    """
    if all(item.source == "weights" for item in constants.table):
        return None
    with open_archive(code) as archive:
        root = archive.entries[0].name.partition("/")[0] if archive.entries else ""
        former = f"{root}/{FORMER_LITERALS}"
        is_former = any(entry.name == former for entry in archive.entries)
        return archive.read(former if is_former else f"{root}/{LITERALS}")


def listing(path: Path) -> tuple[Member, ...]:
    """Return every member with its size and digest, in the order `unzip -l` prints them.

    Raises:
        CorruptArchive: The archive or a member is damaged.
    """
    with open_archive(path) as archive:
        return tuple(
            Member(entry.name, entry.size, digest_chunks(archive.chunks(entry))) for entry in archive.entries
        )


def _damaged_member(entry: Entry) -> CorruptArchive:
    return CorruptArchive(
        "the member's bytes do not match the size and CRC in its header",
        where=printable_name(entry.name),
        hint=REBUILD,
    )
