"""Frozen values and rules: names, digests, targets, specs, build states, artifacts and compatibility."""
