"""Operators of exported programs that torch does not have: their modules come along with the program."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from pt2hub.client.publishing.live_models.kernel_calls import OPERATOR, declare_operator
from pt2hub.errors import BadProgram
from pt2hub.torchvision_operators import declare_torchvision
from pt2hub_workers.inside.sources.code import add_code, import_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pt2hub_workers.inside.sources.source_files import SourceFiles

_WHERE = "source.program"
_MODULES = "source.operators"
_MAX_NAMED = 5
"""Maximum number of operators that an error names."""


def register_operators(names: Iterable[str], given: SourceFiles, modules: Iterable[str]) -> None:
    """Import what registers a program's operators, and refuse those that stay unknown; torch's own error is not helpful.

    Args:
        names: The program's operators, `namespace::name`.
        modules: Modules of the archive to import; where there are none, those whose source names a missing operator.

    Raises:
        BadCodeArchive: The archive of modules is damaged.
        BadProgram: Nothing registers an operator.
        UnknownEntry: A module cannot be imported.
    """
    names = list(names)
    if any(name.startswith("torchvision::") for name in names):
        declare_torchvision()
        import torchvision  # noqa: F401  # registers them
    if OPERATOR in names:
        declare_operator()
    if given.modules is not None:
        root = add_code(given.modules, given.scratch)
        for module in list(modules) or list(_find_modules(root, _missing(names))):
            import_module(module, root, _MODULES)
    if missing := _missing(names):
        raise BadProgram(
            f"operators not found on this worker: {', '.join(missing[:_MAX_NAMED])}",
            where=_WHERE,
            hint="Name the modules that register them: source: {operators: [module]}."
            if given.modules is not None
            else "Publish the folder with the module that registers them beside the program: `pt2hub publish SPEC --program FILE "
            "--code FOLDER`.",
        )


def _missing(names: Iterable[str]) -> list[str]:
    return [name for name in names if not hasattr(_namespace(name), name.rpartition("::")[2])]


def _namespace(operator: str) -> object:
    return getattr(torch.ops, operator.partition("::")[0])


def _find_modules(root: Path, operators: Iterable[str]) -> Iterator[str]:
    """Yield the modules whose source names one of the operators, whole or in two texts as torch.library.Library takes it."""
    wanted = [operator.split("::") for operator in operators]
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(errors="replace")
        if any(f"{space}::{name}" in text or _has_both(text, space, name) for space, name in wanted):
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _has_both(text: str, space: str, name: str) -> bool:
    return bool(
        re.search(rf"[\"\']{re.escape(space)}[\"\']", text) and re.search(rf"[\"\']{re.escape(name)}\b", text)
    )
