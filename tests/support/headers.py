"""PyTorch's precompiled headers for tests: one place for all of them, as for all workers of a machine."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub_workers.builds import precompiled_headers
from pt2hub_workers.inside.builds.compile.precompiled_headers import HEADERS_VARIABLE, use_prepared
from pt2hub_workers.operations.device_lock import DeviceLock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.builds.toolchains import Toolchain

PLACE = Path(os.environ.get("PT2HUB_HEADERS") or Path(tempfile.gettempdir(), f"pt2hub-headers-{os.getuid()}"))
"""The worker's default, found before a test names a directory of its own for temporary files."""


def ready(toolchain: Toolchain, environ: Mapping[str, str], scratch: Path) -> None:
    """Compiles what builds of a toolchain include, unless a test before did; `PLACE` is there already.

    Args:
        toolchain: Whose children build.
        environ: Their environment, which names `PLACE`.
        scratch: For the device's lock.
    """
    made = precompiled_headers.PrecompiledHeaders(PLACE, toolchain, environ)
    made.ensure(DeviceLock(scratch / "headers-device"))
    made.close()


@functools.cache
def use_here() -> None:
    """Lets builds in this very process use them, too; what else its tests include is compiled once for all of them."""
    own = tempfile.mkdtemp(prefix="pt2hub-headers-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    use_prepared({HEADERS_VARIABLE: str(PLACE)}, Path(own, "headers"))
