"""Formatting of states and their terminal colours."""

from __future__ import annotations

STATE_COLOURS = {
    "green": ("succeeded", "ready", "idle", "better", "compatible"),
    "yellow": ("running", "partial", "pending", "busy", "draining", "inconclusive", "degraded"),
    "red": ("failed", "cancelled", "revoked", "lost", "worse", "incompatible"),
}


def format_state(state: str) -> str:
    """Format a state of anything: `not measured`."""
    return state.replace("_", " ")


def choose_colour(state: str) -> str:
    """Return a state's colour; none for an unknown state of a newer server."""
    return next((colour for colour, states in STATE_COLOURS.items() if state in states), "default")
