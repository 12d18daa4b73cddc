"""PyTorch's precompiled headers for tests: one place for all of them, as for all workers of a machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub_workers import headers
from pt2hub_workers.device import Device

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.toolchains import Toolchain

PLACE = Path(os.environ.get("PT2HUB_HEADERS") or Path(tempfile.gettempdir(), f"pt2hub-headers-{os.getuid()}"))
"""The worker's default, found before a test names a directory of its own for temporary files."""


def ready(toolchain: Toolchain, environ: Mapping[str, str], scratch: Path) -> None:
    """Compiles what builds of a toolchain include, unless a test before did; `PLACE` is there already.

    Args:
        toolchain: Whose children build.
        environ: Their environment, which names `PLACE`.
        scratch: For the device's lock.
    """
    made = headers.Headers(PLACE, toolchain, environ)
    made.ensure(Device(scratch / "headers-device"))
    made.close()
