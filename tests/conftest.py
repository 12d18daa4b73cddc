"""Fixtures for every test; each group lives in tests/support."""

import signal

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

# A shell that starts us in the background lets us ignore Ctrl-C, and so would every program that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
