"""Fixtures for every test; each group lives in tests/support."""

pytest_plugins = ["support.postgres", "support.server"]
