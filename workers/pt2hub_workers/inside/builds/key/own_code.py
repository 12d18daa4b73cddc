"""Distinguishes code that the toolchain's versions identify (torch, Triton, Python, pt2hub) from all other code."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import pt2hub
import pt2hub_workers

if TYPE_CHECKING:
    from types import FunctionType

_PACKAGES = ("triton", "numpy", "functorch", "torchgen")
"""Packages that torch imports in addition to its declared requirements; their versions come with torch's."""


@functools.cache
def own_folders() -> tuple[str, ...]:
    """Return the folders with code that the program key identifies by version."""
    stdlib = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    packages = [Path(module.__file__ or "").parent for module in (torch, pt2hub, pt2hub_workers)]
    required = {re.split(r"[^\w-]", line)[0] for line in importlib.metadata.requires("torch") or []}
    for name in (*_PACKAGES, *sorted(required)):
        found = importlib.util.find_spec(name.replace("-", "_")) if name else None
        if found is not None and found.origin and found.origin != "built-in":
            place = Path(found.origin)
            packages.append(place.parent if found.submodule_search_locations else place)
    return (*sorted(str(path) for path in packages), *sorted(filter(None, stdlib)))


@functools.cache
def is_own_file(path: str) -> bool:
    """Return whether a file belongs to torch, what torch requires, Python or pt2hub."""
    inside = any(path == folder or path.startswith(f"{folder}/") for folder in own_folders())
    if not inside:
        return False
    # Other distributions are installed below the standard library's folder.
    packages = next((part for part in ("/site-packages/", "/dist-packages/") if part in path), None)
    folders = [folder for folder in own_folders() if path == folder or path.startswith(f"{folder}/")]
    return packages is None or any(packages in f"{folder}/" for folder in folders)


@functools.cache
def is_own_module(name: str) -> bool:
    """Return whether a module of this name belongs to torch, what torch requires, Python or pt2hub."""
    top = name.partition(".")[0]
    module = sys.modules.get(name) or sys.modules.get(top)
    file = getattr(module, "__file__", None)
    if file is not None:  # a source may have a module with the name of one of Python's: test.py, profile.py
        return is_own_file(str(file))
    return top in sys.stdlib_module_names


def is_own_function(function: FunctionType) -> bool:
    """Return whether a Python function is own code; generated code counts if its globals are those of an own module."""
    file = function.__code__.co_filename
    if not file.startswith("<"):
        return is_own_file(file)
    name = str(function.__globals__.get("__name__", ""))
    module = sys.modules.get(name)
    return module is not None and vars(module) is function.__globals__ and is_own_module(name)


def is_foreign_function(function: FunctionType) -> bool:
    """Return whether a Python function in an own module comes from other code.

    This is not the opposite of `is_own_function`: generated own code may have globals that belong to no module.
    """
    file = function.__code__.co_filename
    if not file.startswith("<"):
        return not is_own_file(file)
    name = str(function.__globals__.get("__name__", ""))
    return name in sys.modules and name != "builtins" and not is_own_module(name)
