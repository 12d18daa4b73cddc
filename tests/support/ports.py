"""Ports for servers that must be told theirs."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

_PORTS = range(20_000, 32_000)
"""Below those that Linux gives to connections, and to servers that ask for any port (`ip_local_port_range`): nobody
who runs beside a test is given one of these while its server starts, or starts again."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    # All are held at once, so that none is given twice.
    with ExitStack() as stack:
        held: list[int] = []
        while len(held) < count:
            port = random.SystemRandom().choice(_PORTS)
            with suppress(OSError):  # taken
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                held.append(port)
        return held
