"""What `pt2hub up` demands of workers, and what it says where models' code is not confined.

On a machine of one's own, reached by nobody else, a missing sandbox is no reason not to begin: models' code then
does what its owner might do anyway. As soon as others reach the API they may publish, and the sandbox is a must.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.workers import Required
from pt2hub.server.processes import tail

if TYPE_CHECKING:
    import socket
    from pathlib import Path

FALLEN_BACK = "isolation is only process: "
"""How a worker begins the line of its log that says why it has no sandbox."""
_LINES = 200
"""Far more than a worker writes between that line and the end of its start."""


@dataclass(frozen=True, slots=True)
class Confining:
    """How much is demanded.

    Attributes:
        required: The least that the server takes.
        worker: What the worker of this machine is told: `sandbox`, `process`, or `auto`.
    """

    required: Required
    worker: str


def confining(isolation: str | None, listener: socket.socket) -> Confining:
    """Decides how much is demanded.

    Args:
        isolation: `PT2HUB_ISOLATION`, None where it is unset.
        listener: Where the API listens.
    """
    chosen = isolation or ("auto" if _is_private(listener) else "sandbox")
    return Confining("sandbox" if chosen == "sandbox" else "process", chosen)


def warning(log: Path | None) -> tuple[str, ...]:
    """What the user must be told when the worker runs models' code without a sandbox.

    Args:
        log: The worker's, which says what is missing and how to get it; None where nobody asked for a sandbox.
    """
    first, *rest = ((_reason(log) if log else None) or "PT2HUB_ISOLATION=process").splitlines()
    return (
        f"WARNING: models' code runs with the rights of this user: {first}",
        *rest,
        "  Publish only what you trust.",
    )


def _is_private(listener: socket.socket) -> bool:
    """Whether only this machine reaches a socket."""
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def _reason(log: Path) -> str | None:
    for line in reversed(tail(log, lines=_LINES).splitlines()):
        with contextlib.suppress(ValueError, AttributeError):  # what stands in a log need not be JSON
            event = str(json.loads(line).get("event"))
            if event.startswith(FALLEN_BACK):
                return event.removeprefix(FALLEN_BACK)
    return None
