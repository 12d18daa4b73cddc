"""Routes of the front page, and of the models of a team."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.names import MAX_NAME, is_team
from pt2hub.errors import NotFound, UsageError
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.front.attention_texts import compose_answer, compose_needs, pick_needs
from pt2hub.server.pages.front.model_query import ALIASES, ORDERS, ModelQuery
from pt2hub.server.pages.front.model_rows import row_of
from pt2hub.server.pages.publishing.retention import describe_retention
from pt2hub.server.pages.templates import fragment, page
from pt2hub.server.views import overview
from pt2hub.server.views.overview import OverviewPage

if TYPE_CHECKING:
    from typing import Any

    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

_MAX_NEEDS = 6
"""Things that need somebody shown above the models."""
_MAX_ALL_NEEDS = 200
"""Those shown once all are asked for."""
_NAMES = "Model names are team/name. The search at the top matches any part of them."


@routes.get("/")
def front() -> Response:
    """Return what needs somebody and the models; with `part`, only what changes while a reader looks."""
    return _list_response(ModelQuery.read())


@routes.get("/models")
def models() -> WerkzeugResponse:
    """Redirect to the front page, which lists the models."""
    return redirect(url_for("pages.front", q=request.args.get("q")))


@routes.get("/models/<team>")
def team(team: str) -> Response:
    """Return the models of a team."""
    if not is_team(team):
        raise _no_team(team)
    query = ModelQuery.read(team)
    return _list_response(query)


def _list_response(query: ModelQuery) -> Response:
    found, error = OverviewPage(()), None
    after = query.place()
    try:
        found = container().overview.models(query.to_filter(), order=query.order, after=after)
    except UsageError as caught:
        error = caught
    if query.of_team and not (found.models or after or query.filters or error):
        raise _no_team(query.team)
    shown = {
        "query": query,
        "found": found,
        "rows": [row_of(item) for item in found.models],
        "activity": _activity(query),
        "bounds": overview,
    }
    if request.args.get("part") and not error:
        return fragment("front_list.html", **shown)
    return page(
        "front.html",
        section="models",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        error=error,
        choices=container().overview.choices(),
        orders=ORDERS,
        retention=describe_retention(query.team) if query.of_team else None,
        aliases=ALIASES,
        **shown,
    )


def _activity(query: ModelQuery) -> dict[str, Any] | None:
    """Return the answer and what needs somebody on the first page of all models, with totals, or of a team's; else None."""
    if query.after or query.filters.keys() - {"team"}:
        return None
    service = container().overview
    attention = service.attention(query.team)
    totals = None if query.team else service.totals()
    needs = (
        compose_needs(attention)[:_MAX_ALL_NEEDS] if query.all == "1" else pick_needs(attention, _MAX_NEEDS)
    )
    return {
        "answer": compose_answer(
            attention,
            has_models=totals is None or totals.models > 0,
            reindex_due=(reindex_due := container().storage_acquaintance.explain_reindex_due()),
        ),
        "is_reindex_due": reindex_due is not None,
        "needs": needs,
        "more": attention.count - len(needs),
        "totals": totals,
        "open": totals is not None and totals.running + totals.queued > 0,
    }


def _no_team(team: str) -> NotFound:
    return NotFound(f"Team {team[:MAX_NAME]} not found", where="team", hint=_NAMES)
