"""The role under which tests run their workers."""

from __future__ import annotations

from pt2hub.server.db.embedded import USER
from pt2hub.server.db.worker_role import DEFAULT_ROLE

REFUSED = "permission denied for"
"""What PostgreSQL answers to a statement for which a role lacks a right."""


def worker_url(url: str) -> str:
    """The URL of a test's database for its workers."""
    return url.replace(f"//{USER}@", f"//{DEFAULT_ROLE}@")
