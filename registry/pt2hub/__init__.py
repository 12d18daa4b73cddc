"""pt2hub: publish a PyTorch model once, pull verified AOTInductor artifacts.

`pt2hub.load("team/name@3")` pulls an artifact that runs on this machine and returns a callable; `pull`,
`publish` and `Client` do the rest. Importing pt2hub is cheap: they are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.version import __version__

if TYPE_CHECKING:
    from pt2hub import errors
    from pt2hub.client.client import Client
    from pt2hub.client.machine.fingerprint import environment
    from pt2hub.client.shortcuts import load, publish, pull, save_program

__all__ = ["Client", "__version__", "environment", "errors", "load", "publish", "pull", "save_program"]


def __getattr__(name: str) -> object:
    if name == "errors":
        from importlib import import_module

        return import_module("pt2hub.errors")
    if name == "environment":
        from pt2hub.client.machine.fingerprint import environment

        return environment
    if name in __all__:
        from pt2hub.client.artifacts.imports import collector_paused

        with collector_paused():
            from pt2hub.client import shortcuts
        return getattr(shortcuts, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
