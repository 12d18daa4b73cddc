"""Fixtures for every test; each group lives in tests/support."""

pytest_plugins = [
    "support.postgres",
    "support.registry",
    "support.s3",
    "support.server",
    "support.live",
    "support.stub",
]
