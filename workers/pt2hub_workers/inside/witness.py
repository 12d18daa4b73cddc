"""`python -m pt2hub_workers.inside.witness`: what a child finds around itself, as JSON.

The worker asks before it believes that a sandbox confines: a bubblewrap that another program stands in for, an option
that a version ignores or a kernel without a feature would let builds run as if they were confined.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

SEALED = ("/", "/usr", "/dev", "/proc/sys")
"""Must be there to read only."""
_NOWHERE = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737); nothing is sent to it."""


def witness() -> dict[str, Any]:
    """The process's rights, its network, and what it could write."""
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    capabilities = [int(status[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Inh", "Bnd", "Amb")]
    return {
        "no_new_privileges": int(status["NoNewPrivs"]),
        "capabilities": max(capabilities),
        "seccomp": int(status["Seccomp"]),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "network": _reaches(),
        "first": Path("/proc/1/comm").read_text().strip(),
        "writable": [path for path in SEALED if not os.statvfs(path).f_flag & os.ST_RDONLY],
        "clone": _makes_namespaces(),
    }


def _reaches() -> bool:
    """Whether there is a way to another machine, without sending anything there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_NOWHERE)
        except OSError as error:
            return error.errno != errno.ENETUNREACH
    return True


def _makes_namespaces() -> bool:
    """Whether the kernel lets us have a user namespace; asked in a child, which would be changed by it."""
    import ctypes

    new_user = 0x10000000  # CLONE_NEWUSER
    pid = os.fork()
    if pid == 0:
        os._exit(ctypes.CDLL(None).unshare(new_user) == 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


if __name__ == "__main__":
    json.dump(witness(), sys.stdout)
