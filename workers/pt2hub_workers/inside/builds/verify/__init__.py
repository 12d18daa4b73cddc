"""Verification of an artifact against its model."""
