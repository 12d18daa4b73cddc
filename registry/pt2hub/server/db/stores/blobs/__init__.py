"""Blobs: stored bytes and uploads."""
