"""The audit log as the API returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.principals import Principal


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something that was done.

    Attributes:
        id: Number of the entry. Numbers grow, and may have gaps.
        at: ISO 8601, UTC.
        principal: Who did it.
        action: What was done, such as `alias.move`.
        resource: What it was done to: a version, alias, build, model, blob, upload or token.
        models: Models that it changed, `team/name`; empty where it is about none.
        request: Id of the request, as in the server's log; None without one.
        change: What changed, such as `before` and `after`. Secrets are never in it.
    """

    id: int
    at: str
    principal: Principal
    action: str
    resource: str
    models: tuple[str, ...] = ()
    request: str | None = None
    change: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Audit entries, newest first.

    Attributes:
        entries: The entries of this page.
        next: Cursor: the value of `after` for the next page, None on the last page.
    """

    entries: tuple[AuditEntry, ...]
    next: str | None = None
