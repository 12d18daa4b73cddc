"""Debug logs of a compile: torch's own logs, recorded on request."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Literal

from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

DebugLogKind = Literal["output_code", "fusion", "schedule", "graph"]

DEBUG_LOGS: Mapping[str, str] = {
    "output_code": "the code that Inductor generates",
    "fusion": "which operations Inductor fuses, and why it does not fuse others",
    "schedule": "the scheduler's nodes after fusion, in the order of the generated code",
    "graph": "the graph that Inductor lowers, after its own passes",
}
"""What each log has. The names are those of `TORCH_LOGS`, but `graph`, which is torch's `post_grad_graphs`."""
MAX_LOG_BYTES = 4 << 20
"""Largest log of a kind; what follows is cut, and the log's last line says so."""
MAX_STORED_BYTES = MAX_LOG_BYTES + 1024
"""Largest stored log: with the line about what was cut."""


def suggest_kind(kind: str) -> str:
    """Return a question after the kind that may be meant (`did you mean fusion?`); empty if none is similar."""
    similar = difflib.get_close_matches(kind.lower()[:80].removesuffix("s"), DEBUG_LOGS, n=1)
    return f"did you mean {similar[0]}?" if similar else ""


def check_kind(kind: str) -> None:
    """Check that a kind of debug log exists.

    Raises:
        InvalidInput: It does not.
    """
    if kind not in DEBUG_LOGS:
        advice = suggest_kind(kind)
        raise InvalidInput(
            f"Unknown debug log {kind[:80]!a}" + (f"; {advice}" if advice else ""),
            where="debug",
            hint=f"There are {', '.join(DEBUG_LOGS)}.",
        )


def member_name(kind: str) -> str:
    """Return the name of a log in the stored archive."""
    return f"{kind}.txt"


def cut_note(left_out: int) -> str:
    """Return the last line of a log that was cut."""
    return (
        f"[pt2hub: {left_out:,} bytes more are not kept; the maximum of a log is {MAX_LOG_BYTES >> 20} MiB]\n"
    )
