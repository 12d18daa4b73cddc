"""Descriptions of models."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.errors import InvalidInput
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse


@routes.post("/models/<team>/<name>/description")
def describe(team: str, name: str) -> Response | WerkzeugResponse:
    """Set a model's description, or return the form with its error."""
    typed, catalog = request.form.get("description"), container().catalog
    if typed is None:
        return redirect(url_for("pages.model", team=team, name=name), HTTPStatus.SEE_OTHER)
    try:
        catalog.describe(f"{team}/{name}", typed, by=sessions.actor())
    except InvalidInput as error:
        return page(
            "description_retry.html",
            section="models",
            status=status_of(type(error)),
            model=catalog.model(f"{team}/{name}"),
            typed=typed,
            error=error,
        )
    return redirect(url_for("pages.model", team=team, name=name), HTTPStatus.SEE_OTHER)
