"""The one place that starts the processes in which users' code runs.

There are two levels of isolation, and every artifact's provenance names the one it was made at. `process` is a process
group of its own, an environment without credentials, bounds on what it may use, and death with the worker: for code of
one's own. `sandbox` is that in bubblewrap: what can be read is the system, Python and pt2hub, what can be written is the
child's own room, there is no network, no other process and no privilege, and a filter keeps the kernel's dangerous calls
from it.
"""

from pt2hub_workers.sandbox.environment import SECRETS, allowed, at_level
from pt2hub_workers.sandbox.finding import Isolation, SandboxSettings, open_launcher
from pt2hub_workers.sandbox.launching import Launcher, Level, ProcessLauncher, SandboxLauncher
from pt2hub_workers.sandbox.limits import Exceeded, Limits
from pt2hub_workers.sandbox.starting import Started

__all__ = [
    "SECRETS",
    "Exceeded",
    "Isolation",
    "Launcher",
    "Level",
    "Limits",
    "ProcessLauncher",
    "SandboxLauncher",
    "SandboxSettings",
    "Started",
    "allowed",
    "at_level",
    "open_launcher",
]
