"""Builds: queue, steps, progress and logs."""
