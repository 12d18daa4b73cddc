"""Generated sources of artifacts, read from an untrusted zip within size limits."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub import archive
from pt2hub.domain.artifacts import SOURCES_TYPE
from pt2hub.domain.digests import Digest
from pt2hub.errors import INVISIBLE_CHARACTERS, CorruptArchive, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts.inspection import InspectionStore
from pt2hub.server.services.artifacts.inspection import artifact_facts
from pt2hub.server.services.artifacts.referrers import payload
from pt2hub.server.services.blobs.documents import read_verified
from pt2hub.server.services.suggestions import suggest_words
from pt2hub.server.views.inspection import SourceFile, SourcesView, SourceText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.inspection import CodeReferrer

MAX_BYTES = 32 << 20
"""Of all sources: those of the largest known models have a few megabytes."""
MAX_FILE_BYTES = 4 << 20
MAX_FILES = 1000
WINDOW_LINES = 300
_MAX_WINDOW_CHARS = 64 << 10
_MAX_LINE_CHARS = 1000
_LIMITS = archive.Limits(members=MAX_FILES, total=2 * MAX_BYTES, directory=1 << 20)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,260}")
_WRAPPER = ".wrapper."
_VISIBLE = dict.fromkeys(INVISIBLE_CHARACTERS, "\ufffd")


@dataclass(frozen=True, slots=True)
class _WantedSource:
    """A requested part of the sources: a file (None for the first) from a line on."""

    name: str | None
    first: int


class GeneratedSourceService:
    """Shows the sources that the compiler generated."""

    def __init__(self, sessions: Sessions, storage: BlobReader) -> None:
        self._sessions = sessions
        self._storage = storage

    def sources(self, digest: str, name: str | None = None, *, first: int = 1) -> SourcesView:
        """Return the sources of an artifact, and some lines of one of them.

        Args:
            name: A file; the first one where omitted.
            first: Number of the first line, from 1.

        Returns:
            The view, with a problem where the stored sources are missing or damaged.

        Raises:
            NotFound: The artifact or the file does not exist.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
            kept = InspectionStore(session).code_referrer(Digest(digest), SOURCES_TYPE)
        view = SourcesView(Digest(digest), facts["model"], facts["number"], facts["target"], kept)
        if kept is None:
            return view
        try:
            opened = self._open(kept)
        except _SHOWN as error:
            return replace(view, problem=error.message)
        files = tuple(SourceFile(entry.name, entry.size) for entry in opened.entries)
        return _chosen(opened, replace(view, files=files), _WantedSource(name, first))

    def place(self, digest: str, name: str) -> tuple[str, int] | None:
        """Return the source position that defines a name, or else uses it first.

        Args:
            name: Of a kernel, or of an operation that the wrapper calls.

        Returns:
            A file and a line number, from 1; None where the name is not found or the sources cannot be read.

        Raises:
            NotFound: The artifact does not exist.
        """
        with self._sessions.begin() as session:
            artifact_facts(session, digest)
            kept = InspectionStore(session).code_referrer(Digest(digest), SOURCES_TYPE)
        if kept is None or not _NAME.fullmatch(name):
            return None
        try:
            opened = self._open(kept)
            texts = ((entry.name, opened.read(entry.name)) for entry in _readable(opened))
            return _find_position(texts, name.encode())
        except _SHOWN:
            return None

    def _open(self, kept: CodeReferrer) -> archive.Archive:
        layer = payload(self._storage, kept.referrer)
        if layer.mediaType != SOURCES_TYPE:
            raise CorruptArchive("The referrer contains no sources", where=kept.referrer)
        data = read_verified(self._storage, StorageKey.blob(layer.digest), most=MAX_BYTES)
        return archive.Archive(io.BytesIO(data), limits=_LIMITS)


_SHOWN = (NotFound, TooLarge, DigestMismatch, CorruptArchive)


def _readable(opened: archive.Archive) -> Iterator[archive.Entry]:
    """Yield the files to search, kernels before the wrapper, together at most `MAX_FILE_BYTES`."""
    left = MAX_FILE_BYTES
    for entry in sorted(opened.entries, key=lambda item: (_WRAPPER in item.name, item.name)):
        if entry.size <= left:
            left -= entry.size
            yield entry


def _find_position(texts: Iterable[tuple[str, bytes]], name: bytes) -> tuple[str, int] | None:
    used: tuple[str, int] | None = None
    word = re.compile(rb"(?<!\w)" + name + rb"(?!\w)")
    defined = re.compile(rb"^[^\n;]{0,200}\b(?:void|def)\s+" + name + rb"\s*\(", re.MULTILINE)
    for file, data in texts:
        if found := defined.search(data):
            return file, data.count(b"\n", 0, found.start()) + 1
        if used is None and (found := word.search(data)):
            used = file, data.count(b"\n", 0, found.start()) + 1
    return used


def _chosen(opened: archive.Archive, view: SourcesView, wanted: _WantedSource) -> SourcesView:
    names = [file.name for file in view.files]
    if wanted.name is not None and wanted.name not in names:
        suggestions = suggest_words(wanted.name[:200], names) or names[:3]
        raise NotFound(
            f"File {wanted.name[:80]!a} not found in the sources",
            where="file",
            hint=f"They have {', '.join(suggestions)}." if suggestions else None,
        )
    if not names:
        return view
    entry = opened.entry(wanted.name if wanted.name is not None else names[0])
    if entry.size > MAX_FILE_BYTES:
        problem = f"{entry.name} is too large to show ({entry.size} bytes); download the sources"
        return replace(view, problem=problem)
    try:
        data = opened.read(entry.name)
    except CorruptArchive as error:
        return replace(view, problem=f"{entry.name}: {error.message}")
    return replace(view, text=_window(entry.name, data, wanted.first))


def _window(name: str, data: bytes, first: int) -> SourceText:
    """Return a window of lines from one on; beyond the end, the last lines."""
    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n").split("\n")
    begin = max(0, min(first - 1, len(lines) - 1))
    shown: list[str] = []
    left = _MAX_WINDOW_CHARS
    for line in lines[begin : begin + WINDOW_LINES]:
        visible = _visible(line)
        left -= len(visible) + 1
        if left < 0 and shown:
            break
        shown.append(visible)
    before = "\n".join(lines[:begin])
    # Triton's kernels are comments in a wrapper, so many windows begin inside a comment.
    commented = before.rfind("/*") > before.rfind("*/")
    return SourceText(name, len(data), tuple(shown), begin + 1, len(lines), commented)


def _visible(line: str) -> str:
    cut = line[:_MAX_LINE_CHARS].translate(_VISIBLE)
    return cut if len(line) <= _MAX_LINE_CHARS else f"{cut} ... ({len(line) - _MAX_LINE_CHARS:,} more)"
