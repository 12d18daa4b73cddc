"""Texts about an artifact's code, read from an untrusted zip within size limits."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub import archive
from pt2hub.domain.digests import Digest
from pt2hub.errors import INVISIBLE_CHARACTERS, CorruptArchive, DigestMismatch, NotFound, TooLarge
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.artifacts.inspection import InspectionStore
from pt2hub.server.services.artifacts.inspection import artifact_facts
from pt2hub.server.services.artifacts.referrers import payload
from pt2hub.server.services.blobs.documents import read_verified
from pt2hub.server.services.suggestions import suggest_words
from pt2hub.server.views.inspection import TextFile, TextsView, TextWindow

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.inspection import CodeReferrer

SHOWN = (NotFound, TooLarge, DigestMismatch, CorruptArchive)
"""Errors that are shown as text; an unavailable storage fails the request."""
WINDOW_LINES = 300
_MAX_WINDOW_CHARS = 64 << 10
_MAX_LINE_CHARS = 1000
_MAX_DIRECTORY_BYTES = 1 << 20
_VISIBLE = dict.fromkeys(INVISIBLE_CHARACTERS, "\ufffd")


@dataclass(frozen=True, slots=True)
class ArchiveKind:
    """A kind of archive that a build keeps about its code.

    Attributes:
        media_type: Of the referrer and its layer.
        what: What it contains, for errors ("sources").
        max_bytes: Largest archive.
        max_file_bytes: Largest file that is shown.
        max_files: Most files.
    """

    media_type: str
    what: str
    max_bytes: int
    max_file_bytes: int
    max_files: int = 1000


class ArchivedTexts:
    """Texts in the archives of one kind."""

    def __init__(self, sessions: Sessions, storage: BlobReader, kind: ArchiveKind) -> None:
        self._sessions = sessions
        self._storage = storage
        self.kind = kind
        self._limits = archive.Limits(
            members=kind.max_files, total=2 * kind.max_bytes, directory=_MAX_DIRECTORY_BYTES
        )

    def view(self, digest: str, name: str | None = None, *, first: int = 1) -> TextsView:
        """Return the files of an artifact's archive, and some lines of one of them.

        Args:
            name: A file; the first one where omitted.
            first: Number of the first line, from 1.

        Returns:
            The view, with a problem where the archive is missing or damaged.

        Raises:
            NotFound: The artifact or the file does not exist.
        """
        view = self.locate(digest)
        if view.kept is None:
            return view
        try:
            opened = self.open(view.kept)
        except SHOWN as error:
            return replace(view, problem=error.message)
        files = tuple(TextFile(entry.name, entry.size) for entry in opened.entries)
        return self._choose(opened, replace(view, files=files), name, first)

    def locate(self, digest: str) -> TextsView:
        """Return where the archive about an artifact's code is kept, without its files.

        Raises:
            NotFound: The artifact does not exist.
        """
        with self._sessions.begin() as session:
            facts = artifact_facts(session, digest)
            kept = InspectionStore(session).code_referrer(Digest(digest), self.kind.media_type)
        return TextsView(Digest(digest), facts["model"], facts["number"], facts["target"], kept)

    def open(self, kept: CodeReferrer) -> archive.Archive:
        """Open an archive.

        Raises:
            NotFound: The archive is missing from storage.
            CorruptArchive: It is damaged, or not of this kind.
            TooLarge: It is too large.
            DigestMismatch: The archive in storage was changed.
        """
        layer = payload(self._storage, kept.referrer)
        if layer.mediaType != self.kind.media_type:
            raise CorruptArchive(f"The referrer contains no {self.kind.what}", where=kept.referrer)
        data = read_verified(self._storage, StorageKey.blob(layer.digest), most=self.kind.max_bytes)
        return archive.Archive(io.BytesIO(data), limits=self._limits)

    def _choose(self, opened: archive.Archive, view: TextsView, name: str | None, first: int) -> TextsView:
        names = [file.name for file in view.files]
        if name is not None and name not in names:
            raise self._no_such_file(name, names)
        if not names:
            return view
        entry = opened.entry(name if name is not None else names[0])
        if entry.size > self.kind.max_file_bytes:
            problem = f"{entry.name} is too large to show ({entry.size} bytes); download the {self.kind.what}"
            return replace(view, problem=problem)
        try:
            data = opened.read(entry.name)
        except CorruptArchive as error:
            return replace(view, problem=f"{entry.name}: {error.message}")
        return replace(view, text=_window(entry.name, data, first))

    def _no_such_file(self, name: str, names: list[str]) -> NotFound:
        suggestions = suggest_words(name[:200], names) or names[:3]
        return NotFound(
            f"File {name[:80]!a} not found in the {self.kind.what}",
            where="file",
            hint=f"They have {', '.join(suggestions)}." if suggestions else None,
        )


def _window(name: str, data: bytes, first: int) -> TextWindow:
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
    return TextWindow(name, len(data), tuple(shown), begin + 1, len(lines), commented)


def _visible(line: str) -> str:
    cut = line[:_MAX_LINE_CHARS].translate(_VISIBLE)
    return cut if len(line) <= _MAX_LINE_CHARS else f"{cut} ... ({len(line) - _MAX_LINE_CHARS:,} more)"
