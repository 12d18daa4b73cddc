"""Source positions of a document's fields, so that errors can show line and column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OPENING = (".", "[")


def find_positions(text: str | bytes, paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Find line and column of each field, from 1; for a missing field, those of its parent.

    Args:
        text: YAML or JSON; if it cannot be parsed, no field has a position.
        paths: Paths of fields, as in errors: `inputs[0].shape[1]`.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}
    return {path: place for path in paths if root is not None and (place := _position(root, path))}


def _position(root: yaml.Node, path: str) -> tuple[int, int] | None:
    """Return the position of a path; None if its first part is missing, as the error then concerns the whole document."""
    place, node, rest = None, root, path
    while step := next(_steps(node, rest), None):
        mark, node, rest = step
        place = mark.line + 1, mark.column + 1
    return place


def _steps(node: yaml.Node, path: str) -> Iterator[tuple[yaml.Mark, yaml.Node, str]]:
    """Yield the possible next steps: position, node and remaining path. Keys may contain dots."""
    if isinstance(node, yaml.SequenceNode):
        place, closing, rest = path.removeprefix("[").partition("]")
        if closing and path.startswith("[") and place.isdecimal() and int(place) < len(node.value):
            item = node.value[int(place)]
            yield item.start_mark, item, rest.removeprefix(".")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            rest = path.removeprefix(str(key.value))
            if path.startswith(str(key.value)) and (not rest or rest.startswith(_OPENING)):
                yield key.start_mark, value, rest.removeprefix(".")
