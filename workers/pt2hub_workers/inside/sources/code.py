"""Models that uploaded Python source builds. It runs here, in the sandbox, and nowhere else."""

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
from pt2hub.operators import declare_torchvision
from pt2hub_workers.inside.sources.calling import Call, origin, said
from pt2hub_workers.inside.sources.functions import takes_inputs
from pt2hub_workers.inside.sources.requirements import INSTALLING, check_requirements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    from pt2hub.domain.specs import CodeSource

WHERE = "source.entry"
_MOST = 20
"""Names listed in one hint."""
_SUFFIXES = (*importlib.machinery.SOURCE_SUFFIXES, *importlib.machinery.EXTENSION_SUFFIXES)
_NEEDED = ("torch", "pt2hub", "safetensors")
"""Distributions that the build imports from at any time, and so those that they need."""
_HARMLESS = frozenset({"test"})
"""Python's own tests have a name that projects use, and are not imported by what they test."""


def build(source: CodeSource, archive: Path | None, scratch: Path) -> Any:  # noqa: ANN401  # whatever the entry makes
    """Unpacks the archive, imports the entry and, where it is a builder, calls it under its seed.

    Args:
        source: The entry, its arguments, and what the code requires.
        archive: The uploaded zip.
        scratch: Where its files go; they stay on sys.path, for a model may import when it is called.

    Raises:
        BadCodeArchive: It is damaged, or its modules would take the place of those that the build needs.
        MissingRequirement: The worker lacks something.
        UnknownEntry: The entry cannot be imported, or is none.
        FactoryArguments: The builder does not take these arguments.
        FactoryFailed: The builder raised.
        NotAModule: The entry is a module itself, or was to be a function and is none.
    """
    if archive is None:
        raise InternalError("a build from code was given no archive", where="source.code")
    root = scratch / "source"
    unpack_code(archive, root)
    _check_names(root)
    check_requirements(source.requirements)
    declare_torchvision()  # the code may import it, or what imports it
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    torch.manual_seed(source.seed)  # modules may draw numbers when they are imported
    entry = _entry(source, root)
    if source.entry_is == "function":
        return entry
    aside = (
        " If it is the model itself, write `entry_is: function`."
        if takes_inputs(entry, source.kwargs)
        else ""
    )
    return Call(entry, source.entry, WHERE, root, aside).make(source.kwargs, source.seed)


def _entry(source: CodeSource, root: Path) -> Callable[..., Any]:
    name, _, attribute = source.entry.partition(":")
    module = _import(name, root)
    found = getattr(module, attribute, None)
    if isinstance(found, torch.nn.Module):
        raise NotAModule(
            f"{source.entry} is a {type(found).__name__} itself, and an entry is called",
            where=WHERE,
            hint=f"Name the class, or write a function that returns {attribute}.",
        )
    if not callable(found):
        made = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        kind = "" if found is None else f", but a value of type {type(found).__name__}"
        raise UnknownEntry(
            f"{name} has no function {attribute}{kind}", where=WHERE, hint=_near(attribute, made, "It has")
        )
    return found


def _import(name: str, root: Path) -> ModuleType:
    modules = sorted(_modules(root))
    if name not in modules:
        raise UnknownEntry(
            f"the archive has no module {name}", where=WHERE, hint=_near(name, modules, "Its modules are")
        )
    try:
        return importlib.import_module(name)
    except Exception as error:  # the code is users': whatever it raises at import is theirs
        line = origin(error, root)
        raise UnknownEntry(
            f"{name} cannot be imported: {said(error)}{f' at {line}' if line else ''}",
            where=WHERE,
            hint=_import_hint(error, modules),
        ) from error


def _import_hint(error: Exception, modules: list[str]) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return "Import it in a fresh Python process, with nothing but the archive's folder on the path."
    top = error.name.partition(".")[0]
    if top in {module.partition(".")[0] for module in modules}:
        return _near(error.name, modules, "The archive's modules are")
    inside = [module for module in modules if f".{module}".endswith(f".{error.name}")]
    if inside:
        return f"The archive has {inside[0]}: import it by that name, or pack the folder above {error.name}."
    return (
        f"Neither the archive nor the worker has {top}. Declare its package in source.requirements. {INSTALLING}; or put "
        "its source into the archive."
    )


def _near(name: str, names: list[str], listed: str) -> str:
    near = difflib.get_close_matches(name, names, n=3) or [
        item for item in names if item.endswith(f".{name}")
    ]
    if near:
        return f"Did you mean {', '.join(near)}?"
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{listed} {', '.join(names[:_MOST])}{more}." if names else "It is empty."


def _modules(root: Path) -> Iterator[str]:
    """Names by which an archive's files can be imported."""
    for path in root.rglob("*"):
        suffix = next((item for item in _SUFFIXES if path.name.endswith(item)), None)
        if suffix and path.is_file():
            parts = [*path.relative_to(root).parts[:-1], path.name.removesuffix(suffix)]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if all(part.isidentifier() for part in name.split(".")):
                yield name


def _check_names(root: Path) -> None:
    """Refuses what would be imported in place of what the build needs, now or later."""
    tops = {name for name in _modules(root) if "." not in name} - _HARMLESS
    loaded = {name.partition(".")[0] for name in sys.modules}
    taken = tops & (loaded | sys.stdlib_module_names | _needed())
    if taken:
        first = min(taken)
        raise BadCodeArchive(
            f"the archive's {', '.join(sorted(taken))} would take the place of a module of the same name that the build "
            "itself needs",
            where="source.code",
            hint=f"Give {first} another name, or put it into a package of your own.",
        )


@functools.cache
def _needed() -> frozenset[str]:
    """Top-level modules of the distributions that the build imports from, and of all that these need."""
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
