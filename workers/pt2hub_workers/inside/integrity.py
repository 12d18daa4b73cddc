"""Whether the model's code has replaced pt2hub's own functions in its build's process.

It protects nobody: such code may do here what it likes, and what it leaves is proven in other processes. It tells an
author, whose code patches more than it means to, what is at fault.
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from pt2hub.errors import ModelInterferes

if TYPE_CHECKING:
    from collections.abc import Iterator

_Mark: TypeAlias = tuple[Any, CodeType | None]
_OURS = ("pt2hub", "pt2hub_workers")
_SHOWN = 5


class OwnFunctions:
    """pt2hub's functions and classes as they are before the model's code comes."""

    def __init__(self) -> None:
        """Notes them; modules that are imported later are not watched."""
        self._noted = dict(_functions())

    def replaced(self) -> list[str]:
        """Return the names of those that are others now."""
        found = dict(_functions())
        return sorted(name for name, noted in self._noted.items() if not _same(noted, found.get(name)))

    def check(self, where: str) -> None:
        """Refuse a process in which any was replaced.

        Args:
            where: What the process is.

        Raises:
            ModelInterferes: One was; the error names it.
        """
        if replaced := self.replaced():
            more = f" and {len(replaced) - _SHOWN} more" if len(replaced) > _SHOWN else ""
            raise ModelInterferes(
                f"The model's code replaced pt2hub's own {', '.join(replaced[:_SHOWN])}{more}",
                where=where,
                hint="Look for what the code, or a library that it imports, patches in other modules, and leave pt2hub "
                "out.",
            )


def _functions() -> Iterator[tuple[str, _Mark]]:
    """Every function and class of our modules, and every function of those classes, by name."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in _OURS or not isinstance(module, ModuleType):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, FunctionType | type):
                yield f"{name}.{key}", _mark(value)
            if isinstance(value, type) and value.__module__ == name:
                for part, inner in list(vars(value).items()):
                    if isinstance(inner, FunctionType | staticmethod | classmethod | property):
                        yield f"{name}.{key}.{part}", _mark(inner)


def _mark(value: Any) -> _Mark:  # noqa: ANN401  # whatever defines behaviour
    """What tells a function from another one in its place: itself, and its code, which can be exchanged as well."""
    return value, getattr(value, "__code__", None)


def _same(noted: _Mark, found: _Mark | None) -> bool:
    return found is not None and all(one is other for one, other in zip(noted, found, strict=True))
