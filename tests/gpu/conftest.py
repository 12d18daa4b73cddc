"""One server for all tests on the GPU: each start of it costs a minute there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pt2hub.cli.operations.temporary_server import TemporaryServer
from support.gpu import LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.client.client import Client

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    paths = os.pathsep.join(str(ROOT / name) for name in ("registry", "workers"))
    path = paths + os.pathsep + os.environ.get("PYTHONPATH", "")
    settings = {"PYTHONPATH": path, "PT2HUB_ISOLATION": LEVEL, "PT2HUB_CONCURRENCY": "4"}
    trial = TemporaryServer(tmp_path_factory.mktemp("gpu"), **settings)
    with trial.server() as made:
        yield made


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure at once: pytest prints it after the last test, and a run may be cut by its time."""
    if report.failed:
        print(report.longreprtext)
