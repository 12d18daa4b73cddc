"""Fixtures for every test; each group lives in tests/support."""

import os
import signal

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
