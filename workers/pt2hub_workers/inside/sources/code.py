"""Builds models from uploaded Python source, which runs in this sandboxed process only."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.machinery
import importlib.metadata
import sys
from typing import TYPE_CHECKING, Any

import torch
from packaging.requirements import Requirement

from pt2hub.archive.code import unpack_code
from pt2hub.errors import BadCodeArchive, InternalError, NotAModule, UnknownEntry
from pt2hub.torchvision_operators import declare_torchvision
from pt2hub_workers.inside.sources.call import FactoryCall, error_text, find_own_line
from pt2hub_workers.inside.sources.functions import looks_like_model
from pt2hub_workers.inside.sources.requirements import INSTALL_HINT, check_requirements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from pt2hub.domain.publishing.spec import CodeSource

WHERE = "source.entry"
_MAX_NAMES = 20
"""Maximum number of names in one hint."""
_SUFFIXES = (*importlib.machinery.SOURCE_SUFFIXES, *importlib.machinery.EXTENSION_SUFFIXES)
_NO_TRITON = "The worker has no triton, which comes with torch for CUDA: choose targets with a GPU."
_NEEDED = ("torch", "pt2hub", "safetensors")
"""Distributions that the build imports from at any time; those that they require are included."""
_HARMLESS = frozenset({"test"})
"""Modules of Python whose names projects may use: `test` is not imported by other modules."""


def build(source: CodeSource, archive: Path | None, scratch: Path) -> Any:
    """Unpack the archive, import the entry and, unless it is a function, call it with its seed.

    Args:
        scratch: Folder for its files; they stay on sys.path, because a model may import when it is called.

    Raises:
        BadCodeArchive: The archive is damaged, or its modules would replace modules that the build needs.
        MissingRequirement: The worker lacks a requirement.
        UnknownEntry: The entry does not exist or cannot be imported.
        NotAModule: The entry is a module itself.
    """
    if archive is None:
        raise InternalError("a build from code requires an archive", where="source.code")
    root = add_code(archive, scratch)
    check_requirements(source.requirements)
    torch.manual_seed(source.seed)  # modules may draw numbers when they are imported
    entry = _entry(source, root)
    if source.entry_is == "function":
        return entry
    aside = (
        " If the function is the model itself, set `entry_is: function`."
        if looks_like_model(entry, source.kwargs)
        else ""
    )
    return FactoryCall(entry, source.entry, WHERE, root, aside).make(source.kwargs, source.seed)


def add_code(archive: Path, scratch: Path) -> Path:
    """Unpack an archive and put it on the import path; return its folder.

    Raises:
        BadCodeArchive: The archive is damaged, or its modules would replace modules that the build needs.
    """
    root = scratch / "source"
    unpack_code(archive, root)
    _check_names(root)
    declare_torchvision()  # the code may import it, directly or indirectly
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    return root


def _entry(source: CodeSource, root: Path) -> Callable[..., Any]:
    name, _, attribute = source.entry.partition(":")
    module = import_module(name, root)
    found = getattr(module, attribute, None)
    if isinstance(found, torch.nn.Module):
        raise NotAModule(
            f"{source.entry} must be callable without being the model, got an instance of {type(found).__name__}",
            where=WHERE,
            hint=f"Name the class, or write a function that returns {attribute}.",
        )
    if not callable(found):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        kind = "" if found is None else f", only a value of type {type(found).__name__}"
        raise UnknownEntry(
            f"{name} has no function {attribute}{kind}",
            where=WHERE,
            hint=_suggest(attribute, names, "It has"),
        )
    return found


def import_module(name: str, root: Path, where: str = WHERE) -> ModuleType:
    """Import a module of an unpacked archive.

    Raises:
        UnknownEntry: The archive lacks it, or it raises.
    """
    modules = sorted(_modules(root))
    if name not in modules:
        raise UnknownEntry(
            f"the archive has no module {name}", where=where, hint=_suggest(name, modules, "Its modules are")
        )
    try:
        return importlib.import_module(name)
    except Exception as error:  # the code is the user's and may raise anything
        line = find_own_line(error, root)
        raise UnknownEntry(
            f"{name} cannot be imported: {error_text(error)}{f' at {line}' if line else ''}",
            where=where,
            hint=_import_hint(error, modules),
        ) from error


def _import_hint(error: Exception, modules: list[str]) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return "Reproduce the error by importing it in a fresh Python process with only the archive's folder on the path."
    top = error.name.partition(".")[0]
    if top in {module.partition(".")[0] for module in modules}:
        return _suggest(error.name, modules, "The archive's modules are")
    inside = [module for module in modules if f".{module}".endswith(f".{error.name}")]
    if inside:
        return f"The archive has {inside[0]}: import it under that name, or pack the folder that contains {error.name}."
    if error.name == "triton":
        return _NO_TRITON
    return (
        f"Neither the archive nor the worker has {top}. Declare its package in source.requirements ({INSTALL_HINT}), or add "
        "its source to the archive."
    )


def _suggest(name: str, names: list[str], listed: str) -> str:
    close = difflib.get_close_matches(name, names, n=3) or [
        item for item in names if item.endswith(f".{name}")
    ]
    if close:
        return f"Did you mean {', '.join(close)}?"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{listed} {', '.join(names[:_MAX_NAMES])}{more}." if names else "It is empty."


def _modules(root: Path) -> Iterator[str]:
    """Yield the module names of an archive's files."""
    for path in root.rglob("*"):
        suffix = next((item for item in _SUFFIXES if path.name.endswith(item)), None)
        if suffix and path.is_file():
            parts = [*path.relative_to(root).parts[:-1], path.name.removesuffix(suffix)]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if all(part.isidentifier() for part in name.split(".")):
                yield name


def _check_names(root: Path) -> None:
    """Refuse modules that would replace modules that the build needs now or later."""
    tops = {name for name in _modules(root) if "." not in name} - _HARMLESS
    loaded = {name.partition(".")[0] for name in sys.modules}
    taken = tops & (loaded | sys.stdlib_module_names | _needed_modules())
    if taken:
        first = min(taken)
        raise BadCodeArchive(
            f"the archive's {', '.join(sorted(taken))} would replace a module of the same name that the build itself needs",
            where="source.code",
            hint=f"Rename {first}, or move it into a package.",
        )


@functools.cache
def _needed_modules() -> frozenset[str]:
    """Return the top-level modules of the distributions that the build imports from, and of all their requirements."""
    found: set[str] = set()
    waiting = list(_NEEDED)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _requires(name)
    modules = importlib.metadata.packages_distributions()
    return frozenset(name for name, owners in modules.items() if found & {_plain(owner) for owner in owners})


def _requires(distribution: str) -> list[str]:
    try:
        lines = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    wanted = map(Requirement, lines)
    return [
        _plain(item.name) for item in wanted if item.marker is None or item.marker.evaluate({"extra": ""})
    ]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
