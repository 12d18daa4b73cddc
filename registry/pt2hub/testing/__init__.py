"""A registry in memory, for the tests of programs that use pt2hub."""

from pt2hub.testing.fake_registry import FakeRegistry

__all__ = ["FakeRegistry"]
