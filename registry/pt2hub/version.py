"""The release of pt2hub."""

__version__ = "0.1.0"
