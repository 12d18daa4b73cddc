"""Artifacts: contents, files and loading."""
