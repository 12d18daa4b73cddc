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
from xdist.scheduler import LoadFileScheduling

from pt2hub_workers.children.pool import PATIENT
from support.headers import PLACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from xdist.remote import Producer

_TOGETHER = "tests/browser/"
"""Tests that look at one server with a year's data, which takes longer to fill than most of them take."""


class _ByFile(LoadFileScheduling):
    """Files beside each other, as `--dist loadfile` has them, and one folder in one process."""

    def _split_scope(self, nodeid: str) -> str:
        return _TOGETHER if nodeid.startswith(_TOGETHER) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFile | None:
    """Keeps tests together that share what is dear to make; other ways to share tests out are as they were."""
    return _ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


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
