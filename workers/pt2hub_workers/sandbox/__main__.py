"""Runs the sandbox self-test and prints the result as JSON, for `pt2hub doctor`."""

from __future__ import annotations

import json
import os

from pt2hub.errors import Pt2hubError
from pt2hub_workers.sandbox.discovery import SandboxSettings, open_launcher
from pt2hub_workers.sandbox.limits import limits_from_environ


def main() -> None:
    """Print whether models' code can be confined on this machine."""
    try:
        bwrap = os.environ.get("PT2HUB_BWRAP") or None
        settings = SandboxSettings("sandbox", limits_from_environ(os.environ), bwrap)
        launcher = open_launcher(settings, os.environ)
        report = {"confines": True, "message": f"{launcher.bwrap} confines models' code", "hint": ""}
    except Pt2hubError as exc:
        report = {"confines": False, "message": exc.message, "hint": exc.hint or ""}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
