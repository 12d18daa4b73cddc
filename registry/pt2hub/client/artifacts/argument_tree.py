"""Splitting of nested call arguments into the parts that a signature names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pt2hub.domain.publishing.paths import Container, Step, parse
from pt2hub.errors import BadCall

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import Signature


@dataclass(slots=True)
class _Part:
    """A container in an argument.

    Attributes:
        path: Where it is.
        container: `dict`, `list` or `tuple`; callers may pass either of the last two.
        parts: What is in it by key or place: another container, or None for a tensor or a fixed value.
        needed: Keys or places that hold a tensor, or something that does.
    """

    path: str
    container: Container
    parts: dict[str | int, _Part | None]
    needed: set[str | int]

    def apart(self, value: Any, found: dict[str, Any]) -> None:
        """Add the leaves of a value to `found`, by path.

        Raises:
            BadCall: The value has another form.
        """
        items = self._entries(value) if self.container == "dict" else self._items(value)
        for key, item in items:
            part, path = self.parts[key], self.path_of(key)
            if isinstance(part, _Part):
                part.apart(item, found)
            else:
                found[path] = item

    def path_of(self, key: str | int) -> str:
        """Return the path of a part."""
        return f"{self.path}{Step(self.container, key)}"

    def _entries(self, value: Any) -> list[tuple[str | int, Any]]:
        if not isinstance(value, Mapping):
            self._refuse(f"{type(value).__name__}, not a dict", f"Pass a dict with {self._names()}.")
        for key in value:
            if key not in self.parts:
                raise BadCall(
                    f"Unknown key {key!r}; the artifact takes {self._names()}",
                    where=f"{self.path}.{key}",
                    hint="The artifact reads the parts that its signature names, and would ignore others.",
                )
        for key in self.parts:
            if key in self.needed and key not in value:
                raise BadCall(
                    "The part is missing",
                    where=self.path_of(key),
                    hint=f"The artifact takes {self._names()}.",
                )
        return list(value.items())

    def _items(self, value: Any) -> list[tuple[str | int, Any]]:
        if not isinstance(value, list | tuple):
            self._refuse(
                f"{type(value).__name__}, not a {self.container}", f"Pass {self._names()} in this order."
            )
        if len(value) != len(self.parts):
            self._refuse(
                f"{len(value)} items, the artifact takes {len(self.parts)}", f"They are {self._names()}."
            )
        return list(enumerate(value))

    def _names(self) -> str:
        keys = sorted(self.parts) if self.container != "dict" else self.parts
        return ", ".join(str(key) if self.container == "dict" else self.path_of(key) for key in keys)

    def _refuse(self, message: str, hint: str) -> NoReturn:
        raise BadCall(message, where=self.path, hint=hint)


class ArgumentTree:
    """The nested arguments of an artifact."""

    def __init__(self, arguments: Mapping[str, _Part]) -> None:
        self._arguments = arguments
        self.roots = frozenset(arguments)

    @classmethod
    def of(cls, signature: Signature) -> ArgumentTree | None:
        """Return the nested arguments of a signature; None where every argument is a tensor or a fixed value."""
        tensors = {item.name for item in signature.inputs}
        containers: dict[str, _Part] = {}
        for name in (*tensors, *signature.fixed):
            root, steps = parse(name)
            at = root
            for place, step in enumerate(steps):
                part = containers.setdefault(at, _Part(at, step.container, {}, set()))
                if name in tensors:
                    part.needed.add(step.key)
                path = f"{at}{step}"
                if place + 1 == len(steps):
                    part.parts[step.key] = None
                else:
                    inner = containers.setdefault(path, _Part(path, steps[place + 1].container, {}, set()))
                    part.parts[step.key] = inner
                at = path
        reached = {name for name in containers if name in signature.arguments or not parse(name)[1]}
        return cls({name: containers[name] for name in reached}) if reached else None

    def apart(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the same arguments, with the leaves of nested ones by their paths.

        Raises:
            BadCall: An argument has another form than the artifact's.
        """
        found: dict[str, Any] = {}
        for name, value in given.items():
            part = self._arguments.get(name)
            leaves = {name: value}
            if part is not None:
                part.apart(value, leaves := {})
            for path in leaves:
                if path in found:
                    raise BadCall("The argument is given twice, by position and by name", where=path)
            found |= leaves
        return found
