"""Form that records what a version is derived from."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.lineage import Relation
from pt2hub.errors import Pt2hubError
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_VERSION
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse


@routes.post(f"/models/<team>/<name>/versions/<int(max={MAX_VERSION}):number>/lineage")
def add_derivation(team: str, name: str, number: int) -> Response | WerkzeugResponse:
    """Record a parent of a version, or return the form with its error."""
    relation, parent = (request.form.get(field, "").strip() for field in ("relation", "parent"))
    whole = f"{team}/{name}"
    try:
        container().lineage.change(
            whole, number, add=[f"{relation}:{parent}"], remove=(), by=sessions.actor()
        )
    except Pt2hubError as error:
        return page(
            "derivation_retry.html",
            section="models",
            status=status_of(type(error)),
            model=whole,
            number=number,
            relations=list(Relation),
            relation=relation,
            parent=parent,
            # The form has one parent, under another name.
            error=error.replace(where="From") if error.where == "add[0]" else error,
        )
    there = url_for("pages.version", team=team, name=name, number=number, done="derived")
    return redirect(there, HTTPStatus.SEE_OTHER)
