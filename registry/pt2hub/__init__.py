"""pt2hub: publish a PyTorch model once, pull proven AOTInductor artifacts.

`pt2hub.load("team/name@3")` pulls an artifact that runs on this machine and returns a callable; `pull`,
`publish` and `Client` do the rest. Importing pt2hub costs nothing: they are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pt2hub import errors
    from pt2hub.client.client import Client
    from pt2hub.client.fingerprint import environment
    from pt2hub.client.shortcuts import load, publish, pull

__version__ = "0.1.0"
__all__ = ["Client", "__version__", "environment", "errors", "load", "publish", "pull"]


def __getattr__(name: str) -> object:
    if name == "errors":
        from importlib import import_module

        return import_module("pt2hub.errors")
    if name == "environment":
        from pt2hub.client.fingerprint import environment

        return environment
    if name in __all__:
        from pt2hub.client.imports import collector_paused

        with collector_paused():
            from pt2hub.client import shortcuts
        return getattr(shortcuts, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
