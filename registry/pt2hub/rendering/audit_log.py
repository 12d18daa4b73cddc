"""Audit entries as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.errors import INVISIBLE_CHARACTERS

if TYPE_CHECKING:
    from pt2hub.wire.audit_log import AuditEntry

_MAX_CHARS = 300


def format_change(entry: AuditEntry) -> str:
    """Format what an entry changed, on one line and shortened: `before=2, after=3, reason="canary passed"`."""
    parts = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in entry.change.items()]
    text = ", ".join(parts).translate(INVISIBLE_CHARACTERS)
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."
