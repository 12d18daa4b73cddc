"""Retention: deletion, tombstones and policies."""
