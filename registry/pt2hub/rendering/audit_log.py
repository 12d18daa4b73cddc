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
_NOTHING = "none"


def format_change(entry: AuditEntry) -> str:
    """Format what an entry changed, on one line and shortened: `2 → 3; canary passed`, `owner=ada → bob`.

    Of structured values it names what differs. Digests have their first 12 digits, and fields without a value are left out; see `format_fields` for the whole.
    """
    return _on_one_line(shorten_hashes("; ".join(_parts(entry.change))))


def format_fields(entry: AuditEntry) -> str:
    """Format the fields of an entry as they are, on one line: `before=2, after=3, reason="canary passed"`."""
    parts = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in entry.change.items()]
    return ", ".join(parts).translate(INVISIBLE_CHARACTERS)


def _parts(change: dict[str, Any]) -> Iterator[str]:
    moved = all(name in change for name in _MOVED)
    if moved and (difference := _difference(*(change[name] for name in _MOVED))):
        yield difference
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
    if isinstance(value, dict | list):
        return ", ".join(f"{path}={shown}" for path, shown in _fields(value, ""))
    return str(value)


def _difference(before: Any, after: Any) -> str:
    """Format a change of a value; of structured ones each field that differs: `owner=ada → bob`."""
    if not any(isinstance(value, dict) for value in (before, after)):
        return " → ".join(_value(value) or _NOTHING for value in (before, after))
    old, new = (dict(_fields(value or {}, "")) for value in (before, after))
    steps = [(path, old.get(path, _NOTHING), new.get(path, _NOTHING)) for path in dict.fromkeys([*old, *new])]
    return ", ".join(
        f"{path}={after}" if before == _NOTHING else f"{path}={before} → {after}"
        for path, before, after in steps
        if before != after
    )


def _fields(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a structured value with their paths: `checks[0].metric`."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _fields(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for place, item in enumerate(value):
            yield from _fields(item, f"{path}[{place}]")
    elif path:
        shown = _value(value) or _NOTHING
        yield path, f"[{shown}]" if isinstance(value, list) and value else shown


def _on_one_line(text: str) -> str:
    text = " ".join(text.translate(INVISIBLE_CHARACTERS).split())
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."
