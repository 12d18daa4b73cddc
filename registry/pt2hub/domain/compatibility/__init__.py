"""Compatibility of artifacts with machines."""
