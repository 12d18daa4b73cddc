"""Detects a model's code that has replaced pt2hub's own functions in its build process.

This does not protect: such code can do anything here, and its results are verified in other processes. It shows an
author which of their patches reach further than intended.
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
_MAX_SHOWN = 5


class OwnFunctions:
    """Snapshot of pt2hub's functions and classes before the model's code runs."""

    def __init__(self) -> None:
        self._noted = dict(_own_functions())

    def find_replaced(self) -> list[str]:
        """Return the names of functions and classes that were replaced."""
        found = dict(_own_functions())
        return sorted(name for name, noted in self._noted.items() if not _is_same(noted, found.get(name)))

    def check(self, where: str) -> None:
        """Refuse a process in which a function or class was replaced."""
        if replaced := self.find_replaced():
            more = f" and {len(replaced) - _MAX_SHOWN} more" if len(replaced) > _MAX_SHOWN else ""
            raise ModelInterferes(
                f"The model's code replaced functions of pt2hub: {', '.join(replaced[:_MAX_SHOWN])}{more}",
                where=where,
                hint="Check which modules the code, or a library that it imports, patches, and exclude pt2hub.",
            )


def _own_functions() -> Iterator[tuple[str, _Mark]]:
    """Yield every function, class and method of pt2hub's modules, by name."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in _OURS or not isinstance(module, ModuleType):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, FunctionType | type):
                yield f"{name}.{key}", _identity(value)
            if isinstance(value, type) and value.__module__ == name:
                for part, inner in list(vars(value).items()):
                    if isinstance(inner, FunctionType | staticmethod | classmethod | property):
                        yield f"{name}.{key}.{part}", _identity(inner)


def _identity(value: Any) -> _Mark:
    """Return what identifies a function: the object and its code, which can be replaced too."""
    return value, getattr(value, "__code__", None)


def _is_same(noted: _Mark, found: _Mark | None) -> bool:
    return found is not None and all(one is other for one, other in zip(noted, found, strict=True))
