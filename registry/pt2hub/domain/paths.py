"""Names of tensors inside nested arguments: `batch.image` in a dict, `pair[0]` in a list, `state(0)` in a tuple.

A spec lists tensors one by one; their names say where in the call each belongs. Worker and client read them alike.
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

_PLACE = r"(?:0|[1-9][0-9]{0,2})"
NAME_PATTERN = rf"[A-Za-z_]\w{{0,63}}(?:\.[A-Za-z_][\w-]{{0,63}}|\[{_PLACE}\]|\({_PLACE}\))*"
"""An argument's name and the steps into it."""
_STEP = re.compile(r"\.(?P<dict>[A-Za-z_][\w-]*)|\[(?P<list>[0-9]+)\]|\((?P<tuple>[0-9]+)\)")
_KEY = re.compile(r"[A-Za-z_][\w-]{0,63}")
_ROOT = re.compile(r"[A-Za-z_]\w*")


class ContradictionError(ValueError):
    """Names that cannot stand in one call.

    Attributes:
        name: The name, or the beginning of the names, at fault.
    """

    def __init__(self, name: str, problem: str) -> None:
        """Says what is wrong with a name."""
        super().__init__(f"{name} {problem}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Step:
    """One step into a container.

    Attributes:
        container: What is stepped into.
        key: A dict's key, or a place in a list or tuple.
    """

    container: Container
    key: str | int

    def __str__(self) -> str:
        return {"dict": ".{}", "list": "[{}]", "tuple": "({})"}[self.container].format(self.key)


def parse(name: str) -> tuple[str, tuple[Step, ...]]:
    """The argument and the steps into it.

    Args:
        name: As in a spec, of the form `NAME_PATTERN`.

    Raises:
        ValueError: It has another form.
    """
    root = _ROOT.match(name)
    if root is None or not re.fullmatch(NAME_PATTERN, name):
        raise ValueError(f"{name} is no name of an argument")
    steps = []
    for found in _STEP.finditer(name, root.end()):
        container: Container = found.lastgroup  # type: ignore[assignment]  # the pattern's groups are its values
        steps.append(Step(container, found[0][1:] if container == "dict" else int(found[0][1:-1])))
    return root[0], tuple(steps)


def nest(values: Mapping[str, T]) -> dict[str, Any]:
    """Arguments by name, put together from their parts.

    Args:
        values: Parts by path.

    Returns:
        The arguments; lists and tuples in the order of their places, dicts in the order of `values`.

    Raises:
        ContradictionError: A path contradicts one before it, or a place of a list or tuple is left out.
        ValueError: A path has another form.
    """
    tree: dict[Any, Any] = {}
    for name, value in values.items():
        root, steps = parse(name)
        _put(tree, name, (Step("dict", root), *steps), value)
    return {root: _made(branch, root) for root, branch in tree.items()}


def split(argument: str, value: object) -> Iterator[tuple[str, Any]]:
    """The parts of a nested argument, each with its path; the reverse of `nest`.

    Args:
        argument: The argument's name.
        value: Anything; dicts, lists and plain tuples are stepped into, all else is a part.

    Raises:
        ValueError: A dict has a key that no path can name, or a container is empty.
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
        raise ValueError(f"{argument} is empty: leave it out or give it a tensor")
    for step, item in items:
        yield from split(f"{argument}{step}", item)


class _Branch(dict[Any, Any]):
    """Parts of one container, by key."""

    container: Container = "dict"


def _put(tree: dict[Any, Any], name: str, steps: tuple[Step, ...], value: object) -> None:
    node: dict[Any, Any] = tree
    for step, following in itertools.pairwise(steps):
        branch = node.setdefault(step.key, _branch(following.container))
        if not isinstance(branch, _Branch) or branch.container != following.container:
            raise ContradictionError(name, "contradicts a name before it")
        node = branch
    if steps[-1].key in node:
        raise ContradictionError(name, "is given twice, or contradicts a name before it")
    node[steps[-1].key] = value


def _branch(container: Container) -> _Branch:
    made = _Branch()
    made.container = container
    return made


def _made(node: object, path: str) -> object:
    if not isinstance(node, _Branch):
        return node
    steps = {key: f"{path}{Step(node.container, key)}" for key in node}
    if node.container == "dict":
        return {key: _made(item, steps[key]) for key, item in node.items()}
    for place in range(len(node)):
        if place not in node:
            raise ContradictionError(path, f"lacks its place {place}: places count from 0, without gaps")
    items = [_made(node[place], steps[place]) for place in range(len(node))]
    return items if node.container == "list" else tuple(items)


def _key(argument: str, key: object) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ValueError(f"{argument} has a key {key!r} that is no name of letters, digits, _ and -")
    return key
