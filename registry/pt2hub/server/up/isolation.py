"""Isolation that `pt2hub up` requires of its worker, and the warning about a missing sandbox.

On a private machine a missing sandbox is acceptable, since models' code can only do what its owner may do anyway. If
others can reach the API, they can publish, and the sandbox is required.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.workers import Required
from pt2hub.server.config import is_loopback
from pt2hub.system.processes import tail

if TYPE_CHECKING:
    import socket
    from pathlib import Path

_LINES = 200
"""Lines of a worker's log to search; more than it writes between `isolation_reason` and the end of its start."""


@dataclass(frozen=True, slots=True)
class IsolationSetup:
    """Required isolation of the worker.

    Attributes:
        worker: Isolation setting of this machine's worker: `sandbox`, `process`, or `auto`.
    """

    required: Required
    worker: str


def confining(isolation: str | None, listener: socket.socket) -> IsolationSetup:
    """Determine the required isolation.

    Args:
        isolation: `PT2HUB_ISOLATION`, None where it is unset.
        listener: Where the API listens.
    """
    chosen = isolation or ("auto" if _is_private(listener) else "sandbox")
    return IsolationSetup("sandbox" if chosen == "sandbox" else "process", chosen)


def warning(log: Path | None) -> tuple[str, ...]:
    """Return the warning lines for a worker without a sandbox.

    Args:
        log: The worker's, which says what is missing and how to get it; None where nobody asked for a sandbox.
    """
    first, *rest = ((_reason(log) if log else None) or "PT2HUB_ISOLATION=process").splitlines()
    return (
        f"WARNING: models' code runs with this user's permissions: {first}",
        *rest,
        "  Publish only models that you trust.",
    )


def _is_private(listener: socket.socket) -> bool:
    """Return whether a socket is reachable from this machine only."""
    return is_loopback(listener.getsockname()[0].partition("%")[0])


def _reason(log: Path) -> str | None:
    for line in reversed(tail(log, lines=_LINES).splitlines()):
        with contextlib.suppress(ValueError, AttributeError):  # what stands in a log need not be JSON
            if reason := json.loads(line).get("isolation_reason"):
                return str(reason)
    return None
