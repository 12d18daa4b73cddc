"""Where in the file of a spec or a policy an error lies: the server names fields, the file's author looks for lines."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.errors import Pt2hubError

_DOCUMENT = "document"
"""What `wire.documents` calls the whole of a file that is not well-formed."""
_WHOLE = frozenset({"spec", "policy"})
"""What the services call the whole of a document."""
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def in_file(error: Pt2hubError, path: Path) -> Pt2hubError:
    """An error about a document that also names its file, and line and column of each wrong field.

    Args:
        error: As the server, or the client's own reader, raised it; returned as it is where it is about
            something else, such as the token.
        path: The document's file.
    """
    where = error.where or ""
    if not isinstance(error, UsageError) or str(path) in where:
        return error
    if where.startswith(_DOCUMENT):
        return _again(error, str(path) + where.removeprefix(_DOCUMENT))
    root = _composed(path)
    place = _position(root, where)
    if not (place or error.details or where in _WHOLE):
        return error
    details = error.details
    if len(details) > 1:  # the place of a single one stands in the first line
        details = tuple(replace(item, message=_position(root, item.path) + item.message) for item in details)
    named = f"{path}, {place}{where}" if place else str(path) if where in _WHOLE else f"{path}: {where}"
    return _again(error, named, details=details)


def _again(error: Pt2hubError, where: str, **changes: Any) -> Pt2hubError:  # noqa: ANN401  # an error's own fields
    kept = {"hint": error.hint, "details": error.details, "context": error.context} | changes
    return type(error)(error.message, where=where, **kept)


def _composed(path: Path) -> Any:  # noqa: ANN401  # a node of PyYAML or None
    import yaml

    try:
        return yaml.compose(path.read_bytes(), Loader=yaml.SafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None


def _position(root: Any, field: str) -> str:  # noqa: ANN401  # as _composed
    """`line 4, column 7: ` of a field such as `inputs[0].shape`; of what should hold it where it is missing."""
    mark = None
    for key, index in _PART.findall(field):
        found = _child(root, key, index)
        if found is None:
            break
        mark, root = found
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _child(node: Any, key: str, index: str) -> tuple[Any, Any] | None:  # noqa: ANN401  # as _composed
    if node is None or isinstance(node.value, str):
        return None
    if index:
        items = node.value if int(index) < len(node.value) else []
        return (items[int(index)].start_mark, items[int(index)]) if items else None
    pairs = [pair for pair in node.value if isinstance(pair, tuple)]
    return next(((name.start_mark, value) for name, value in pairs if name.value == key), None)
