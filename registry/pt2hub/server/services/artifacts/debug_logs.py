"""Debug logs of the compile of an artifact's code, read from an untrusted zip within size limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import DEBUG_LOGS_TYPE
from pt2hub.domain.debug_logs import DEBUG_LOGS, MAX_STORED_BYTES, check_kind, member_name
from pt2hub.errors import INVISIBLE_CHARACTERS, CorruptArchive, NotRecorded
from pt2hub.server.services.artifacts.archived_texts import ArchivedTexts, ArchiveKind
from pt2hub.wire.debug_logs import DebugLog, DebugLogsView, DebugLogView

if TYPE_CHECKING:
    from pt2hub import archive
    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.views.inspection import TextsView

_LOGS = ArchiveKind(
    DEBUG_LOGS_TYPE,
    "debug logs",
    max_bytes=len(DEBUG_LOGS) * MAX_STORED_BYTES + (64 << 10),
    max_file_bytes=MAX_STORED_BYTES,
    max_files=len(DEBUG_LOGS),
)
_HINT = (
    "They are recorded on request, while code is compiled: publish a version whose code is compiled anew, with "
    "compile: {{debug: [{kinds}]}} in its spec."
)


class DebugLogService:
    """Shows torch's logs of the compile."""

    def __init__(self, sessions: Sessions, storage: BlobReader) -> None:
        self._texts = ArchivedTexts(sessions, storage, _LOGS)

    def page(self, digest: str, name: str | None = None, *, first: int = 1) -> TextsView:
        """Return the debug logs of an artifact, and some lines of one of them; see `ArchivedTexts.view`.

        Raises:
            NotFound: The artifact or the file does not exist.
        """
        return self._texts.view(digest, name, first=first)

    def logs(self, digest: str) -> DebugLogsView:
        """Return the kinds and sizes of an artifact's debug logs.

        Raises:
            NotFound: The artifact does not exist.
            NotRecorded: No debug logs are recorded for its code.
            CorruptArchive: The archive is damaged.
            DigestMismatch: The archive in storage was changed.
            TooLarge: The archive is too large.
        """
        view, opened, compiled_for = self._open(digest)
        return DebugLogsView(
            artifact=view.digest,
            model=view.model,
            number=view.number,
            target=view.target,
            compiled_for=compiled_for,
            logs=tuple(DebugLog(kind, size) for kind, size in _sizes(opened).items()),
        )

    def log(self, digest: str, kind: str) -> DebugLogView:
        """Return a debug log of an artifact.

        Raises:
            InvalidInput: There is no such kind.
            NotFound: The artifact does not exist.
            NotRecorded: No such log is recorded for its code.
            CorruptArchive: The archive is damaged.
            DigestMismatch: The archive in storage was changed.
            TooLarge: The archive or the log is too large.
        """
        check_kind(kind)
        view, opened, compiled_for = self._open(digest)
        sizes = _sizes(opened)
        if kind not in sizes:
            raise NotRecorded(
                f"No {kind} log is recorded for the artifact {digest}, only {', '.join(sizes) or 'nothing'}",
                where="debug",
                hint=_HINT.format(kinds=kind),
            )
        if sizes[kind] > MAX_STORED_BYTES:
            raise CorruptArchive(f"The {kind} log is larger than the maximum", where="debug")
        text = opened.read(member_name(kind)).decode(errors="replace").translate(INVISIBLE_CHARACTERS)
        return DebugLogView(
            artifact=view.digest,
            model=view.model,
            number=view.number,
            target=view.target,
            compiled_for=compiled_for,
            kind=kind,
            text=text,
        )

    def _open(self, digest: str) -> tuple[TextsView, archive.Archive, Digest]:
        view = self._texts.locate(digest)
        if view.kept is None:
            raise NotRecorded(
                f"No debug logs are recorded for the artifact {digest}",
                where="debug",
                hint=_HINT.format(kinds=", ".join(DEBUG_LOGS)),
            )
        return view, self._texts.open(view.kept), view.kept.artifact


def _sizes(opened: archive.Archive) -> dict[str, int]:
    """Return the size of each known log, in the order of `DEBUG_LOGS`."""
    sizes = {entry.name: entry.size for entry in opened.entries}
    return {kind: sizes[name] for kind in DEBUG_LOGS if (name := member_name(kind)) in sizes}
