"""Builds without a server, for all files of this folder: one toolchain per process, a workbench per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.headers import ready, use_here
from support.workbench import Workbench, child_environ, toolchain_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub_workers.builds.aoti_toolchain import AotiToolchain


@pytest.fixture(scope="session")
def aoti(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AotiToolchain]:
    """AOTInductor with real children: a child has asked torch what this machine is, and the headers are there."""
    folder = tmp_path_factory.mktemp("aoti")
    toolchain = toolchain_in(folder)
    ready(toolchain, child_environ(), folder)
    use_here()
    yield toolchain
    toolchain.close()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, aoti: AotiToolchain) -> Workbench:
    """A file's own builds, with what they said."""
    return Workbench(tmp_path_factory.mktemp("bench"), aoti)
