"""Debug logs as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.debug_logs import DEBUG_LOGS
from pt2hub.renderable import Sheet
from pt2hub.rendering.quantities import format_bytes

if TYPE_CHECKING:
    from pt2hub.wire.debug_logs import DebugLogsView, DebugLogView


def logs(view: DebugLogsView) -> Sheet:
    """Return the kinds and sizes of an artifact's debug logs."""
    rows = tuple((log.kind, format_bytes(log.bytes), DEBUG_LOGS.get(log.kind, "")) for log in view.logs)
    return Sheet(f"{view.model}@{view.number} for {view.target}: debug logs", rows)


def log(view: DebugLogView) -> Sheet:
    """Return a debug log's kind and size; its text has thousands of lines."""
    size = format_bytes(len(view.text.encode(errors="replace")))
    return Sheet(f"{view.model}@{view.number} for {view.target}: {view.kind} log, {size}, in .text")
