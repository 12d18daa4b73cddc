"""Where in a document's text its fields stand, so that an error about one leads to its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OPENING = (".", "[")


def lines_of(text: str, paths: Iterable[str]) -> dict[str, int]:
    """The line of each field, from 1; of one that is missing, that of what it belongs to.

    Args:
        text: YAML or JSON; where it cannot be read no field has a line.
        paths: Fields, as errors name them: `inputs[0].shape[1]`.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}
    return {path: line for path in paths if root is not None and (line := _line(root, path))}


def _line(root: yaml.Node, path: str) -> int | None:
    """None where not even the first part of the path is there: such an error is about the whole document."""
    line, node, rest = None, root, path
    while step := next(_steps(node, rest), None):
        mark, node, rest = step
        line = mark.line + 1
    return line


def _steps(node: yaml.Node, path: str) -> Iterator[tuple[yaml.Mark, yaml.Node, str]]:
    """Ways one step down: where it stands, what is there, and the rest of the path. Keys may hold dots themselves."""
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
