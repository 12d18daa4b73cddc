"""The OpenAPI document as it is served: what the framework cannot know is filled in."""

from __future__ import annotations

import copy
import re
from typing import Any

_ATTRIBUTES = "\n\nAttributes:\n"
_ATTRIBUTE = re.compile(r"^    (\w+): ((?:.|\n {8})*)", re.MULTILINE)
_PYTHON = {"None": "null", "True": "true", "False": "false"}
_WORD = re.compile(rf"\b({'|'.join(_PYTHON)})\b")
_GENERIC = "422"
"""Where the framework describes errors on each route, in a form that they do not have."""


def complete(document: dict[str, Any], *, error: dict[str, Any]) -> dict[str, Any]:
    """A copy of an OpenAPI document, with descriptions of fields and with the errors of each route.

    Args:
        document: As the framework makes it.
        error: The response that describes an error; every route may answer with one.
    """
    made = copy.deepcopy(document)
    for operation in (item for methods in made["paths"].values() for item in methods.values()):
        operation["responses"].pop(_GENERIC, None)
        operation["responses"]["default"] = error
        if text := operation.get("description"):  # the framework writes a docstring's lines as HTML
            operation["description"] = " ".join(text.replace("<br/>", " ").split())
    for schema in made.get("components", {}).get("schemas", {}).values():
        _describe(schema)
    return made


def _describe(schema: dict[str, Any]) -> None:
    """Moves what a dataclass's docstring says of its attributes to the fields."""
    summary, found, attributes = schema.get("description", "").partition(_ATTRIBUTES)
    if not found:
        return
    schema["description"] = summary
    for name, text in _ATTRIBUTE.findall(attributes):
        field = schema.get("properties", {}).get(name)
        if field is not None:
            field.setdefault("description", _WORD.sub(lambda word: _PYTHON[word[1]], " ".join(text.split())))
