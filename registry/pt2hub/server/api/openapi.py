"""Completion of the generated OpenAPI document."""

from __future__ import annotations

import json
import re
from typing import Any

_ATTRIBUTES = "\n\nAttributes:\n"
_ATTRIBUTE = re.compile(r"^    (\w+): ((?:.|\n {8})*)", re.MULTILINE)
_PYTHON = {"None": "null", "True": "true", "False": "false"}
_WORD = re.compile(rf"\b({'|'.join(_PYTHON)})\b")
_WRAPPER = r"RootModel[_\[]"
_WRAPPED = re.compile(rf'schemas/{_WRAPPER}(\w+)[_\]]"')
_GENERIC = "422"
"""The framework's own error response, in a form that pt2hub does not use."""


def complete(document: dict[str, Any], *, error: dict[str, Any]) -> dict[str, Any]:
    """Add field descriptions and error responses to a copy of an OpenAPI document.

    Args:
        document: The framework's document.
        error: Response object for errors, which every route may return.
    """
    made = _without_wrappers(document)
    for operation in (item for methods in made["paths"].values() for item in methods.values()):
        operation["responses"].pop(_GENERIC, None)
        operation["responses"]["default"] = error
        if text := operation.get("description"):  # the framework converts docstrings to HTML
            operation["description"] = " ".join(text.replace("<br/>", " ").split())
    for schema in made.get("components", {}).get("schemas", {}).values():
        _describe(schema)
    return made


def _without_wrappers(document: dict[str, Any]) -> dict[str, Any]:
    """Replace `RootModel[...]` wrappers of response dataclasses by the dataclasses' names, in a copy."""
    text = json.dumps(document)
    made: dict[str, Any] = json.loads(_WRAPPED.sub(r'schemas/\1"', text))
    schemas = made.get("components", {}).get("schemas", {})
    for name in [name for name in schemas if re.match(_WRAPPER, name)]:
        del schemas[name]
    return made


def _describe(schema: dict[str, Any]) -> None:
    """Move attribute descriptions from a dataclass's docstring to its fields."""
    summary, found, attributes = schema.get("description", "").partition(_ATTRIBUTES)
    if not found:
        return
    schema["description"] = summary
    for name, text in _ATTRIBUTE.findall(attributes):
        field = schema.get("properties", {}).get(name)
        if field is not None:
            field.setdefault("description", _WORD.sub(lambda word: _PYTHON[word[1]], " ".join(text.split())))
