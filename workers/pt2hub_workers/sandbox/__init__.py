"""Sandbox: starts the processes in which users' code runs.

There are two levels of isolation; every artifact's provenance names its own. `process` is a process group of its own,
an environment without credentials, resource limits, and death with the worker: for trusted code. `sandbox` adds
bubblewrap: the child can read the system, Python and pt2hub, and write its own workspace; it has no network, sees no
other process, has no privileges, and a filter denies dangerous system calls.
"""

from pt2hub_workers.sandbox.discovery import Isolation, SandboxSettings, open_launcher
from pt2hub_workers.sandbox.environment import SECRETS, allow_variables, at_level
from pt2hub_workers.sandbox.launcher import Launcher, Level
from pt2hub_workers.sandbox.limits import Exceeded, Limits
from pt2hub_workers.sandbox.process_start import Started

__all__ = [
    "SECRETS",
    "Exceeded",
    "Isolation",
    "Launcher",
    "Level",
    "Limits",
    "SandboxSettings",
    "Started",
    "allow_variables",
    "at_level",
    "open_launcher",
]
