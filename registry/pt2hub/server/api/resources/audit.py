"""The audit log."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.domain.tokens import Scope
from pt2hub.server.api.context import caller, container, render
from pt2hub.server.api.request_shapes import SERVER, TOKEN, AuditQuery
from pt2hub.server.services.access.audit_log import read_filter
from pt2hub.wire.audit_log import AuditPage

routes = APIBlueprint("audit", __name__, url_prefix="/api/v1", abp_tags=[SERVER])


@routes.get("/audit", responses={200: RootModel[AuditPage]}, security=TOKEN)
def entries(query: AuditQuery) -> Response:
    """Return who changed what, newest first, page by page. Requires an admin token.

    A token for some models sees entries about these alone; what is about no model, such as tokens, needs one for all.
    """
    wanted = read_filter(query.model, query.principal, query.action, query.since)
    page = container().audit_log.entries(
        wanted, patterns=caller().patterns_for(Scope.ADMIN), after=query.after, limit=query.limit
    )
    return render(page)
