"""Fixtures for every test; each group lives in tests/support."""

import gc
import os
import signal
from pathlib import Path

import pytest
import structlog

from pt2hub.client.config import cpu_level_limit
from pt2hub_workers.sandbox import at_level
from support import statements

pytest_plugins = [
    "support.attempts",
    "support.beside",
    "support.postgres",
    "support.registry",
    "support.seeded_story",
    "support.api_process",
    "support.browser",
    "support.calm",
    "support.receiver",
    "support.s3",
    "support.server",
    "support.limited",
    "support.live",
    "support.oidc_provider",
    "support.pages",
    "support.people",
    "support.shell",
    "support.stub",
    "support.working",
    "support.site",
    "support.webhooks",
]

gc.disable()  # until the tests are collected: imports leave no garbage, and searching for it takes a quarter of them

# Hundreds of processes import the checkout: the first one keeps what it compiled, wherever Python is told not to.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Unconfigured, structlog frames a traceback with the source of each of its calls: two seconds for every error that a
# test provokes within its process.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

statements.share()

# Torch in the test processes themselves is held to the level that PT2HUB_CPU_LEVEL names, as in workers' children.
os.environ.update(at_level(cpu_level_limit()))

# A shell that starts us in the background lets us ignore Ctrl-C, nohup a hangup, and so would every program of tests.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

FIRST = ("test_loaded_code.py", "test_verification.py", "test_program_keys.py", "test_tied_weights.py")
"""Files that compare keys of programs within the test process, as a build's fresh child does. They come before all others:
models of other tests leave patches of torch and deleted libraries behind, which a key rightly names or refuses to.

`test_program_keys.py`, which makes its keys in children, takes more than a minute: begun late, one process would run it
while the others have nothing left. Here it keeps a core busy while `test_verification.py` has the headers compiled, for
which `test_tied_weights.py` would only wait."""

HERE = Path(__file__).parent
FAST_FOLDERS = {"unit", "docs"}
SERVICES_FOLDER = "integration"
GARBAGE_THRESHOLD = 20_000
"""New objects until the next garbage collection of a test process: with Python's 700 they take 3 % of the tests."""
IN_PROCESS = {"registry", "container"}
"""Fixtures of services over a database, inside the test's process."""
BEYOND = {"url", "s3_server", "own_api", "site", "works"}
"""Fixtures with sockets, servers or workers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make test-slow` say how long readers are fuzzed."""
    parser.addoption(
        "--fuzz-seconds",
        type=float,
        default=30.0,
        help="time for each reader in tests/slow/test_fuzzed_readers.py",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of `FIRST` first, in their order, and mark the fast tests: those of `make check`."""
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
    for item in items:
        if is_fast(item):
            item.add_marker(pytest.mark.fast)


def is_fast(item: pytest.Item) -> bool:
    """Return whether a test compiles nothing and starts neither servers nor workers, as far as its fixtures tell."""
    if item.get_closest_marker("compiles"):
        return False
    folder, fixtures = item.path.relative_to(HERE).parts[0], set(getattr(item, "fixturenames", ()))
    in_process = bool(fixtures & IN_PROCESS) and not fixtures & BEYOND
    return folder in FAST_FOLDERS or (folder == SERVICES_FOLDER and in_process)


def pytest_collection_finish() -> None:
    """Freeze what imports and collection made: each full garbage collection over it takes most of a second."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
