"""Processes, signals, logging and the home directory, for server and workers."""
