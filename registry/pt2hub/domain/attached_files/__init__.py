"""Attached files: named files of a version beside its code and weights."""
