"""Compiling an exported program into a packaged artifact."""
