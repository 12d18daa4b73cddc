"""Prints what an extra of pt2hub needs, one requirement a line: a layer of its own in the images, kept between releases.

Called as `python requirements.py pyproject.toml worker --without torch torchvision`.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_OURS = "pt2hub"


def requirements(project: dict[str, Any], extra: str) -> list[str]:
    """Return the requirements of the package and of one of its extras, those of extras that it names included.

    Args:
        project: The table `[project]` of pyproject.toml.
        extra: The extra's name.
    """
    extras: dict[str, list[str]] = project["optional-dependencies"]
    found: list[str] = list(project["dependencies"])
    for item in extras[extra]:
        inner = re.fullmatch(rf"{_OURS}\[(\w+)\]", item)
        found += extras[inner[1]] if inner else [item]
    return sorted(set(found))


def name(requirement: str) -> str:
    """Return the package's name."""
    found = _NAME.match(requirement)
    return found[0].lower() if found else ""


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("extra")
    parser.add_argument("--without", nargs="*", default=[])
    given = parser.parse_args()
    project = tomllib.loads(given.project.read_text())["project"]
    for item in requirements(project, given.extra):
        if name(item) not in given.without:
            print(item)


if __name__ == "__main__":
    main()
