"""Hints of errors help callers of the API and of the Python client too: options only stand in whole commands."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pt2hub

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(pt2hub.__file__).parent
FOR_ALL = ("analysis", "archive", "client", "domain", "errors", "server/api", "server/services", "wire")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMAND = re.compile(r"(pt2hub|pip|git) [a-z]|{command}|pt2hub\.|in Python|in a query")
"""What says where an option belongs: a command before it, or what other callers write."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every hint of a module that is written out, and every constant that one may be made of."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            yield node.value.lineno, ast.unparse(node.value)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            yield node.lineno, ast.unparse(node.value)


@pytest.mark.parametrize("folder", FOR_ALL)
def test_no_hint_names_an_option_without_its_command(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in texts(path)
        if OPTION.search(text) and not COMMAND.search(text)
    ]
    assert found == []
