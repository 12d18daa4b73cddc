"""The release of pt2hub."""

__version__ = "0.2.0"
