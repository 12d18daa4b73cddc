"""Fixtures for every test; each group lives in tests/support."""

import os
import signal

import pytest

from pt2hub.client.config import cpu_level_limit
from pt2hub_workers.sandbox import at_level

pytest_plugins = [
    "support.attempts",
    "support.beside",
    "support.postgres",
    "support.registry",
    "support.api_process",
    "support.browser",
    "support.calm",
    "support.s3",
    "support.server",
    "support.live",
    "support.pages",
    "support.shell",
    "support.stub",
    "support.working",
    "support.site",
]

# Torch in the test processes themselves is held to the level that PT2HUB_CPU_LEVEL names, as in workers' children.
os.environ.update(at_level(cpu_level_limit()))

# A shell that starts us in the background lets us ignore Ctrl-C, and so would every program that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FIRST = ("test_loaded_code.py", "test_tied_weights.py", "test_publish_gate.py")
"""Files that compare keys of programs within the test process, as a build's fresh child does. They come before all others:
models of other tests leave patches of torch and deleted libraries behind, which a key rightly names or refuses to."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of `FIRST` first, in their order; all others keep theirs."""
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(FIRST)))
