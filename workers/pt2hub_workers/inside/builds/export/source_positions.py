"""Source positions of the model's own code, named the way its author knows them."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pt2hub
import pt2hub_workers

_SITE = sysconfig.get_path("purelib")
_OTHERS = (
    *(f"{Path(package.__file__ or '').parent}{os.sep}" for package in (pt2hub, pt2hub_workers)),
    f"{_SITE}{os.sep}torch{os.sep}",
    f"{_SITE}{os.sep}triton{os.sep}",
    "<",
)
"""Prefixes of files that are not the model's, in addition to Python's own."""
_PYTHON = f"{sysconfig.get_path('stdlib')}{os.sep}"


def is_models(file: str) -> bool:
    """Return whether a file is the model's own: not pt2hub's, torch's or Python's."""
    pythons = file.startswith(_PYTHON) and "-packages" not in file
    return not (pythons or file.startswith(_OTHERS))


def display_path(file: str) -> str:
    """Return a source file's path inside its archive or package, instead of the path on this machine."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == file and name != "__main__":
            depth = name.count(".") + 1 + (Path(file).name == "__init__.py")
            return "/".join(Path(file).parts[-depth:])
    return Path(file).name
