"""Where a line of the model's own code is, and how that place is named to its author."""

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
    "<",
)
"""Where code lies that is not the model's, beside Python itself."""
_PYTHON = f"{sysconfig.get_path('stdlib')}{os.sep}"


def is_models(file: str) -> bool:
    """Whether a file is the model's own: neither ours nor torch's nor Python's."""
    pythons = file.startswith(_PYTHON) and "-packages" not in file
    return not (pythons or file.startswith(_OTHERS))


def shown(file: str) -> str:
    """A source file as its author knows it: its path inside the archive or package, not on this machine."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == file and name != "__main__":
            depth = name.count(".") + 1 + (Path(file).name == "__init__.py")
            return "/".join(Path(file).parts[-depth:])
    return Path(file).name
