"""Imports that precede the loading of a model."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector during imports; it stays off if it was off.

    Importing torch leaves 170,000 objects behind, and a few thousand more make Python search all of them for garbage: 75
    of the 200 ms of a load. Modules leave no garbage. Do not pause it for anything that takes longer than imports do:
    other threads may produce garbage meanwhile.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
