"""Archives of source code, as they are uploaded."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pt2hub.archive.code import pack_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DIGEST = "sha256:" + 64 * "0"
"""Of every archive here: a worker has fetched it by then."""
NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = torch.nn.Linear(8, width)

    def forward(self, x):
        return self.linear(x).relu()


def build(width=8):
    return Net(width)
"""
"""A module of a builder and its class."""


def archive(folder: Path, files: Mapping[str, str]) -> Path:
    """Packs files.

    Args:
        folder: An empty one.
        files: Their text by name.
    """
    for name, text in files.items():
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    pack_code(folder / "files", folder / "code.zip")
    return folder / "code.zip"


@contextmanager
def forgetting(place: Path) -> Iterator[None]:
    """Forgets afterwards what was imported from a directory: a real build has a process of its own."""
    try:
        yield
    finally:
        sys.path[:] = [path for path in sys.path if not path.startswith(str(place))]
        for name, module in sys.modules.copy().items():  # other threads import meanwhile
            if str(getattr(module, "__file__", None)).startswith(str(place)):
                del sys.modules[name]
