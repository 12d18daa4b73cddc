"""Page of the audit log, for admins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from pt2hub.domain.audit import Action
from pt2hub.domain.tokens import Scope
from pt2hub.errors import UsageError
from pt2hub.rendering.audit_log import format_change, format_fields
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page
from pt2hub.server.services.access.audit_log import read_filter
from pt2hub.wire.audit_log import AuditPage

if TYPE_CHECKING:
    from flask import Response

_LIMIT = 50
_FILTERS = ("model", "principal", "action", "since")


@routes.get("/audit")
def audit() -> Response:
    """List who changed what, newest first, with a filter form."""
    chosen = {name: request.args.get(name, "").strip() or None for name in _FILTERS}
    after = request.args.get("after")
    error: UsageError | None = None
    found = AuditPage(())
    try:
        found = container().audit_log.entries(
            read_filter(**chosen),
            patterns=sessions.actor().patterns_for(Scope.ADMIN),
            after=after,
            limit=_LIMIT,
        )
    except UsageError as caught:
        error = caught
    return page(
        "audit.html",
        section="audit",
        status=status_of(type(error)) if error else 200,
        error=error,
        found=found,
        chosen=chosen,
        actions=list(Action),
        first=after is None,
        change=format_change,
        fields=format_fields,
    )
