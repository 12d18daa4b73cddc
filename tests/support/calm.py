"""Quiet for tests that measure the time of their own thread."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def no_collector() -> Iterator[None]:
    """No full collection in between: over all that earlier tests of the process left, one takes over a second."""
    gc.disable()
    yield
    gc.enable()
