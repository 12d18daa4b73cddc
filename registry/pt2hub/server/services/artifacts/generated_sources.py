"""Generated sources of artifacts, read from an untrusted zip within size limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import SOURCES_TYPE
from pt2hub.server.services.artifacts.archived_texts import SHOWN, ArchivedTexts, ArchiveKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pt2hub import archive
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.inspection import TextsView

MAX_FILE_BYTES = 4 << 20
_SOURCES = ArchiveKind(SOURCES_TYPE, "sources", max_bytes=32 << 20, max_file_bytes=MAX_FILE_BYTES)
"""The sources of the largest known models have a few megabytes."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,260}")
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_DEFINED = re.compile(rb"^[^\n;]{0,200}?\b(?:void|def)\s+([A-Za-z_][A-Za-z0-9_]*)\s*\(", re.MULTILINE)
_WRAPPER = ".wrapper."


class GeneratedSourceService:
    """Shows the sources that the compiler generated."""

    def __init__(self, sessions: Sessions, storage: BlobReader) -> None:
        self._texts = ArchivedTexts(sessions, storage, _SOURCES)

    def sources(self, digest: str, name: str | None = None, *, first: int = 1) -> TextsView:
        """Return the sources of an artifact, and some lines of one of them; see `ArchivedTexts.view`.

        Raises:
            NotFound: The artifact or the file does not exist.
        """
        return self._texts.view(digest, name, first=first)

    def place(self, digest: str, name: str) -> tuple[str, int] | None:
        """Return the source position that defines a name, or else uses it first.

        Args:
            name: Of a kernel, or of an operation that the wrapper calls.

        Returns:
            A file and a line number, from 1; None where the name is not found or the sources cannot be read.

        Raises:
            NotFound: The artifact does not exist.
        """
        return self.places(digest, [name]).get(name)

    def places(self, digest: str, names: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Return the source positions of names, as for `place`; names that are not found are left out.

        Raises:
            NotFound: The artifact does not exist.
        """
        kept = self._texts.locate(digest).kept
        wanted = {name.encode() for name in names if _NAME.fullmatch(name)}
        if kept is None or not wanted:
            return {}
        try:
            opened = self._texts.open(kept)
            texts = [(entry.name, opened.read(entry.name)) for entry in _readable(opened)]
        except SHOWN:
            return {}
        return {name.decode(): position for name, position in _find_positions(texts, wanted).items()}


def _readable(opened: archive.Archive) -> Iterator[archive.Entry]:
    """Yield the files to search, kernels before the wrapper, together at most `MAX_FILE_BYTES`."""
    left = MAX_FILE_BYTES
    for entry in sorted(opened.entries, key=lambda item: (_WRAPPER in item.name, item.name)):
        if entry.size <= left:
            left -= entry.size
            yield entry


def _find_positions(texts: Iterable[tuple[str, bytes]], names: set[bytes]) -> dict[bytes, tuple[str, int]]:
    """Return where names are defined, or else used first."""
    defined: dict[bytes, tuple[str, int]] = {}
    used: dict[bytes, tuple[str, int]] = {}
    for file, data in texts:
        for found, pattern, group in ((defined, _DEFINED, 1), (used, _WORD, 0)):
            for match in pattern.finditer(data):
                name = match[group]
                if name in names and name not in found:
                    found[name] = file, data.count(b"\n", 0, match.start()) + 1
    return used | defined
