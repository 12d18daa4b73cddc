"""Generated sources of artifacts: a zip that a build made, which nobody trusts; read within bounds."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub import archive
from pt2hub.domain.artifacts import SOURCES_TYPE
from pt2hub.domain.digests import Digest
from pt2hub.errors import UNSEEN, CorruptArchive, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.inspecting import InspectingStore
from pt2hub.server.services.documents import read_proven
from pt2hub.server.services.inspecting import artifact_facts
from pt2hub.server.services.near import near_words
from pt2hub.server.services.referrers import payload
from pt2hub.wire.inspecting import SourceFile, SourcesView, SourceText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions
    from pt2hub.wire.inspecting import KeptSources

MOST_BYTES = 32 << 20
"""Of all sources: those of the largest models seen have some megabytes."""
MOST_OF_FILE = 4 << 20
MOST_FILES = 1000
WINDOW = 300
"""Lines that are shown at a time."""
_MOST_CHARACTERS = 64 << 10
_LONGEST_LINE = 1000
_LIMITS = archive.Limits(members=MOST_FILES, total=2 * MOST_BYTES, directory=1 << 20)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,260}")
_WRAPPER = ".wrapper."
_VISIBLE = dict.fromkeys(UNSEEN, "\ufffd")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What of the sources is asked for.

    Attributes:
        name: A file, None for the first.
        first: The first line.
    """

    name: str | None
    first: int


class GeneratedService:
    """Shows the sources that the compiler generated."""

    def __init__(self, sessions: Sessions, storage: Reads) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            storage: Holds referrers and their blobs.
        """
        self._sessions = sessions
        self._storage = storage

    def sources(self, digest: str, name: str | None = None, *, first: int = 1) -> SourcesView:
        """The sources of an artifact, and some lines of one of them.

        Args:
            digest: The artifact's manifest digest.
            name: A file; the first one where omitted.
            first: Number of the first line wanted, from 1.

        Returns:
            The view; why it shows nothing is in it, where the storage lost or damaged what was kept.

        Raises:
            NotFound: There is no such artifact, or its sources have no such file.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
            kept = InspectingStore(session).sources(Digest(digest))
        view = SourcesView(Digest(digest), facts["model"], facts["number"], facts["target"], kept)
        if kept is None:
            return view
        try:
            opened = self._open(kept)
        except _SHOWN as error:
            return replace(view, problem=error.message)
        files = tuple(SourceFile(entry.name, entry.size) for entry in opened.entries)
        return _chosen(opened, replace(view, files=files), _Wanted(name, first))

    def place(self, digest: str, name: str) -> tuple[str, int] | None:
        """Where the sources define a name, or else use it first.

        Args:
            digest: The artifact's manifest digest.
            name: Of a kernel, or of an operation that the wrapper calls.

        Returns:
            A file and the number of a line, from 1; None where it is in none, or the sources cannot be read.

        Raises:
            NotFound: There is no such artifact.
        """
        with self._sessions.begin() as session:
            artifact_facts(session, digest)
            kept = InspectingStore(session).sources(Digest(digest))
        if kept is None or not _NAME.fullmatch(name):
            return None
        try:
            opened = self._open(kept)
            texts = ((entry.name, opened.read(entry.name)) for entry in _readable(opened))
            return _best_place(texts, name.encode())
        except _SHOWN:
            return None

    def _open(self, kept: KeptSources) -> archive.Archive:
        layer = payload(self._storage, kept.referrer)
        if layer.mediaType != SOURCES_TYPE:
            raise CorruptArchive("The referrer holds no sources", where=kept.referrer)
        data = read_proven(self._storage, StorageKey.blob(layer.digest), most=MOST_BYTES)
        return archive.Archive(io.BytesIO(data), limits=_LIMITS)


_SHOWN = (NotFound, TooLarge, DigestMismatch, CorruptArchive)


def _readable(opened: archive.Archive) -> Iterator[archive.Entry]:
    """Files that are searched: together no more than is shown of one, those of kernels before the wrapper."""
    room = MOST_OF_FILE
    for entry in sorted(opened.entries, key=lambda item: (_WRAPPER in item.name, item.name)):
        if entry.size <= room:
            room -= entry.size
            yield entry


def _best_place(texts: Iterable[tuple[str, bytes]], name: bytes) -> tuple[str, int] | None:
    used: tuple[str, int] | None = None
    word = re.compile(rb"(?<!\w)" + name + rb"(?!\w)")
    defined = re.compile(rb"^[^\n;]{0,200}\b(?:void|def)\s+" + name + rb"\s*\(", re.MULTILINE)
    for file, data in texts:
        if found := defined.search(data):
            return file, data.count(b"\n", 0, found.start()) + 1
        if used is None and (found := word.search(data)):
            used = file, data.count(b"\n", 0, found.start()) + 1
    return used


def _chosen(opened: archive.Archive, view: SourcesView, wanted: _Wanted) -> SourcesView:
    names = [file.name for file in view.files]
    if wanted.name is not None and wanted.name not in names:
        near = near_words(wanted.name[:200], names) or names[:3]
        raise NotFound(
            f"The sources have no file {wanted.name[:80]!a}",
            where="file",
            hint=f"They have {', '.join(near)}." if near else None,
        )
    if not names:
        return view
    entry = opened.entry(wanted.name if wanted.name is not None else names[0])
    if entry.size > MOST_OF_FILE:
        problem = f"{entry.name} has {entry.size} bytes, more than is shown here; download the sources"
        return replace(view, problem=problem)
    try:
        data = opened.read(entry.name)
    except CorruptArchive as error:
        return replace(view, problem=f"{entry.name}: {error.message}")
    return replace(view, text=_window(entry.name, data, wanted.first))


def _window(name: str, data: bytes, first: int) -> SourceText:
    """Lines from one on: as many as a page takes; beyond the end, the last ones."""
    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n").split("\n")
    begin = max(0, min(first - 1, len(lines) - 1))
    shown: list[str] = []
    room = _MOST_CHARACTERS
    for line in lines[begin : begin + WINDOW]:
        visible = _visible(line)
        room -= len(visible) + 1
        if room < 0 and shown:
            break
        shown.append(visible)
    before = "\n".join(lines[:begin])
    # Triton's kernels are comments in a wrapper, so that many windows begin within one.
    commented = before.rfind("/*") > before.rfind("*/")
    return SourceText(name, len(data), tuple(shown), begin + 1, len(lines), commented)


def _visible(line: str) -> str:
    cut = line[:_LONGEST_LINE].translate(_VISIBLE)
    return cut if len(line) <= _LONGEST_LINE else f"{cut} ... ({len(line) - _LONGEST_LINE:,} more)"
