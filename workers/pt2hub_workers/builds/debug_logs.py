"""Debug logs from a build's process, which runs users' code: cleaned, bounded and packed by the worker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub import archive
from pt2hub.domain.debug_logs import MAX_LOG_BYTES, MAX_STORED_BYTES, cut_note, member_name
from pt2hub.errors import INVISIBLE_CHARACTERS
from pt2hub_workers.builds.publication import BlobFile
from pt2hub_workers.inside.operations import files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pt2hub_workers.sandbox.workspaces import Workspace

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Escape sequences of terminals: torch colours graphs."""
_ARCHIVE = "debug-logs.zip"


def pack_debug_logs(workspace: Workspace, kinds: Iterable[str]) -> BlobFile | None:
    """Return the archive of a build's debug logs; None if it wrote none.

    Args:
        kinds: The requested logs; others are left where they are.

    Raises:
        OutputRefused: A log is not a regular file.
    """
    found = {
        member_name(kind): _clean(workspace.take(files.DEBUG_LOGS[kind]))
        for kind in kinds
        if workspace.has(files.DEBUG_LOGS[kind])
    }
    if not found:
        return None
    path = workspace.host / "held" / _ARCHIVE
    archive.write_zip(path, sorted(found.items()))
    return BlobFile.of(path)


def _clean(path: Path) -> bytes:
    """Return a log as UTF-8 text without invisible characters, within the maximum size."""
    size = path.stat().st_size
    with path.open("rb") as file:
        text = file.read(MAX_STORED_BYTES).decode(errors="replace")
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").translate(INVISIBLE_CHARACTERS)
    data = text.encode(errors="replace")
    left_out = max(0, size - MAX_STORED_BYTES) + max(0, len(data) - MAX_STORED_BYTES)
    if not left_out:
        return data
    kept = data[:MAX_LOG_BYTES].decode(errors="ignore").encode()
    return kept + b"\n" + cut_note(len(data) - len(kept) + max(0, size - MAX_STORED_BYTES)).encode()
