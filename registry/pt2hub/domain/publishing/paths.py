"""Paths of tensors in nested arguments: `batch.image` in a dict, `pair[0]` in a list, `state(0)` in a tuple.

A spec lists tensors individually; their paths define their position in the call, for workers and clients alike.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")
Container = Literal["dict", "list", "tuple"]

_INDEX = r"(?:0|[1-9][0-9]{0,2})"
NAME_PATTERN = rf"[A-Za-z_]\w{{0,63}}(?:\.[A-Za-z_][\w-]{{0,63}}|\[{_INDEX}\]|\({_INDEX}\))*"
"""An argument's name followed by steps into it."""
_STEP = re.compile(r"\.(?P<dict>[A-Za-z_][\w-]*)|\[(?P<list>[0-9]+)\]|\((?P<tuple>[0-9]+)\)")
_KEY = re.compile(r"[A-Za-z_][\w-]{0,63}")
_ROOT = re.compile(r"[A-Za-z_]\w*")


class ContradictionError(ValueError):
    """Contradictory paths.

    Attributes:
        name: The offending path or its prefix.
    """

    def __init__(self, name: str, problem: str) -> None:
        """Say what is wrong with a name."""
        super().__init__(f"{name} {problem}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Step:
    """One step into a container.

    Attributes:
        container: Kind of the container.
        key: A dict key or a list or tuple index.
    """

    container: Container
    key: str | int

    def __str__(self) -> str:
        return {"dict": ".{}", "list": "[{}]", "tuple": "({})"}[self.container].format(self.key)


def parse(name: str) -> tuple[str, tuple[Step, ...]]:
    """Split a path into the argument and the steps into it.

    Args:
        name: A path of the form `NAME_PATTERN`.

    Raises:
        ValueError: The path has another form.
    """
    root = _ROOT.match(name)
    if root is None or not re.fullmatch(NAME_PATTERN, name):
        raise ValueError(f"{name} is not a valid argument name")
    steps = []
    for found in _STEP.finditer(name, root.end()):
        container: Container = found.lastgroup  # type: ignore[assignment]  # the pattern's group names are the type's values
        steps.append(Step(container, found[0][1:] if container == "dict" else int(found[0][1:-1])))
    return root[0], tuple(steps)


def nest(values: Mapping[str, T]) -> dict[str, Any]:
    """Assemble arguments from their parts.

    Args:
        values: Parts by path.

    Returns:
        The arguments by name; lists and tuples in index order, dicts in the order of `values`.

    Raises:
        ContradictionError: A path contradicts an earlier one, or an index of a list or tuple is missing.
        ValueError: A path is malformed.
    """
    tree: dict[Any, Any] = {}
    for name, value in values.items():
        root, steps = parse(name)
        _put(tree, name, (Step("dict", root), *steps), value)
    return {root: _build_node(branch, root) for root, branch in tree.items()}


def split(argument: str, value: object) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a nested argument with their paths; the inverse of `nest`.

    Args:
        argument: The argument's name.
        value: Any value; dicts, lists and plain tuples are containers, anything else is a part.

    Raises:
        ValueError: A dict key cannot appear in a path, or a container is empty.
    """
    items: Iterator[tuple[Step, Any]]
    if type(value) is dict:
        items = ((Step("dict", _key(argument, key)), item) for key, item in value.items())
    elif type(value) is list:
        items = ((Step("list", place), item) for place, item in enumerate(value))
    elif type(value) is tuple:
        items = ((Step("tuple", place), item) for place, item in enumerate(value))
    else:
        yield argument, value
        return
    if not value:
        raise ValueError(f"{argument} is empty: omit it or add a tensor")
    for step, item in items:
        yield from split(f"{argument}{step}", item)


class _Branch(dict[Any, Any]):
    """Parts of a container by key."""

    container: Container = "dict"


def _put(tree: dict[Any, Any], name: str, steps: tuple[Step, ...], value: object) -> None:
    node: dict[Any, Any] = tree
    for step, following in itertools.pairwise(steps):
        branch = node.setdefault(step.key, _branch(following.container))
        if not isinstance(branch, _Branch) or branch.container != following.container:
            raise ContradictionError(name, "contradicts an earlier name")
        node = branch
    if steps[-1].key in node:
        raise ContradictionError(name, "is given twice or contradicts an earlier name")
    node[steps[-1].key] = value


def _branch(container: Container) -> _Branch:
    made = _Branch()
    made.container = container
    return made


def _build_node(node: object, path: str) -> object:
    if not isinstance(node, _Branch):
        return node
    steps = {key: f"{path}{Step(node.container, key)}" for key in node}
    if node.container == "dict":
        return {key: _build_node(item, steps[key]) for key, item in node.items()}
    for place in range(len(node)):
        if place not in node:
            raise ContradictionError(path, f"has no index {place}: indices must start at 0 without gaps")
    items = [_build_node(node[place], steps[place]) for place in range(len(node))]
    return items if node.container == "list" else tuple(items)


def _key(argument: str, key: object) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ValueError(
            f"{argument} has the invalid key {key!r}: keys must consist of letters, digits, _ and -"
        )
    return key
