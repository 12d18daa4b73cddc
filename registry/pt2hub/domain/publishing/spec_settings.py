"""Settings of a version: fields of its spec that each submission replaces and that are no part of its identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = ("compile.debug", "limits", "measure")
"""Paths of the fields that control how a version is built, recorded and measured."""


def merge_settings(spec: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canonical spec with the settings of the latest submission."""
    merged = dict(spec)
    for name, value in settings.items():
        before = spec.get(name)
        inside = isinstance(value, dict) and isinstance(before, dict)
        merged[name] = merge_settings(before, value) if inside else value  # type: ignore[arg-type]  # both are dicts
    return merged


def strip_settings(merged: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canonical spec without the settings that `merge_settings` added."""
    left: dict[str, Any] = {}
    for name, value in merged.items():
        if name not in settings:
            left[name] = value
        elif (
            isinstance(value, dict)
            and isinstance(settings[name], dict)
            and (rest := strip_settings(value, settings[name]))
        ):
            left[name] = rest
    return left


def find_setting(settings: Mapping[str, Any], path: str) -> Any:
    """Return the setting at a path of `SETTINGS`; None where it has its default."""
    value: Any = settings
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def debug_logs(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the debug logs that a merged spec asks for."""
    return tuple(find_setting(spec, "compile.debug") or ())
