"""Differences between two artifacts: pure functions over what is recorded with each."""
