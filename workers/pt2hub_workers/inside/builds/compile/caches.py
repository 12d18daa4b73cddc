"""Directories of the compiler's caches, one set for each job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def isolate_caches(directory: Path) -> None:
    """Point the compiler's caches and temporary files into the job's directory.

    Two jobs in one cache directory mix their outputs (docs/facts/aoti.md#one-cache-for-each-build).
    """
    for name, folder in (
        ("TORCHINDUCTOR_CACHE_DIR", "cache"),
        ("TRITON_CACHE_DIR", "cache/triton"),
        ("TMPDIR", "tmp"),
    ):
        path = directory / folder
        path.mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(path)
