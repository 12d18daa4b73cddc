"""`pt2hub up`: one command, one machine: database, API and a worker under one supervisor."""

from __future__ import annotations

from pt2hub.server.up.running import Started, UpOptions, run

__all__ = ["Started", "UpOptions", "run"]
