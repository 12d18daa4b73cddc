"""Audit entries as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pt2hub.errors import INVISIBLE_CHARACTERS
from pt2hub.rendering.hashes import shorten_hashes
from pt2hub.rendering.targets import short_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.wire.audit_log import AuditEntry

_MAX_CHARS = 300
_MOVED = ("before", "after")


def format_change(entry: AuditEntry) -> str:
    """Format what an entry changed, on one line and shortened: `2 → 3; canary passed`.

    Digests have their first 12 digits, and fields without a value are left out; see `format_fields` for the whole.
    """
    return _on_one_line(shorten_hashes("; ".join(_parts(entry.change))))


def format_fields(entry: AuditEntry) -> str:
    """Format the fields of an entry as they are, on one line: `before=2, after=3, reason="canary passed"`."""
    parts = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in entry.change.items()]
    return ", ".join(parts).translate(INVISIBLE_CHARACTERS)


def _parts(change: dict[str, Any]) -> Iterator[str]:
    moved = all(name in change for name in _MOVED)
    if moved:
        yield " → ".join(_value(change[name]) or "none" for name in _MOVED)
    if change.get("reason"):
        yield _value(change["reason"])
    for name, value in change.items():
        if (moved and name in _MOVED) or name == "reason" or value in (None, [], {}, ""):
            continue
        shown = [short_target(item) for item in value] if name == "targets" else value
        yield f"{name.replace('_', ' ')} {_value(shown)}"


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return ", ".join(map(str, value))
    return str(value) if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)


def _on_one_line(text: str) -> str:
    text = " ".join(text.translate(INVISIBLE_CHARACTERS).split())
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."
