"""`python -m pt2hub_workers.inside.operations.sandbox_self_test`: prints what a sandboxed child can do, as JSON.

The worker runs it before it trusts a sandbox: with a replaced bubblewrap program, an option that a version ignores or a
kernel without a feature, builds would run unconfined.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

READ_ONLY = ("/", "/usr", "/dev", "/proc/sys")
"""Directories that must be mounted read-only."""
_UNREACHABLE = ("192.0.2.1", 9)
"""Documentation address (RFC 5737); nothing is sent to it."""


def run_self_test() -> dict[str, Any]:
    """Return the process's privileges, its network access, and writable system directories."""
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    capabilities = [int(status[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Inh", "Bnd", "Amb")]
    return {
        "no_new_privileges": int(status["NoNewPrivs"]),
        "capabilities": max(capabilities),
        "seccomp": int(status["Seccomp"]),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "network": _has_network(),
        "first": Path("/proc/1/comm").read_text().strip(),
        "writable": [path for path in READ_ONLY if not os.statvfs(path).f_flag & os.ST_RDONLY],
        "clone": _can_make_namespaces(),
    }


def _has_network() -> bool:
    """Return whether there is a route to other machines, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_UNREACHABLE)
        except OSError as error:
            return error.errno != errno.ENETUNREACH
    return True


def _can_make_namespaces() -> bool:
    """Return whether the kernel allows a user namespace; tested in a child process, because it would change this one."""
    import ctypes

    new_user = 0x10000000  # CLONE_NEWUSER
    pid = os.fork()
    if pid == 0:
        os._exit(ctypes.CDLL(None).unshare(new_user) == 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


if __name__ == "__main__":
    json.dump(run_self_test(), sys.stdout)
