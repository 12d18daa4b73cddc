"""Rendering of values as text for CLI, prompts, notebooks and pages."""
