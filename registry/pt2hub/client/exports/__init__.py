"""Exports of artifacts to other runtimes, and across an air gap."""
