"""Processes of one test run beside each other (pytest-xdist): what each has for itself, and what they share.

Each has a directory for temporary files, and so locks of the devices: one's measurements do not wait for the other's
builds. PyTorch's precompiled headers are shared, as by all workers of a machine: they take half a minute to make.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pt2hub_workers.pool import PATIENT
from support.headers import PLACE

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Gives a process that is one of several its own directories; before pytest makes any."""
    number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not number:
        return
    # A socket's path has room for 107 bytes; xdist's "popen-gw0" would take too many of them.
    config.option.basetemp = str(Path(config.option.basetemp).with_name(number))
    own = tempfile.mkdtemp(prefix="pt2hub-")
    Path(own).chmod(0o1777)  # other users find locks in it, as in /tmp
    config.add_cleanup(_remover(own))
    os.environ.update(TMPDIR=own, PT2HUB_HEADERS=str(PLACE))
    os.environ.setdefault("GOMP_SPINCOUNT", PATIENT["GOMP_SPINCOUNT"])  # torch's threads share the cores, too
    tempfile.tempdir = None  # Python looked before


def _remover(folder: str) -> Callable[[], None]:
    return lambda: shutil.rmtree(folder, ignore_errors=True)
