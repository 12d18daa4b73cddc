"""What the acceptance tests leave on the disk."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_home_is_left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Removes a test's folder unless it failed: a home with its database takes 50 MB, and there are a hundred."""
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed == failed:
        shutil.rmtree(tmp_path, ignore_errors=True)
