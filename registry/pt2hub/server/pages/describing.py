"""The form that says what a model is."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.errors import InvalidInput
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse


@routes.post("/models/<team>/<name>/description")
def describe(team: str, name: str) -> Response | WerkzeugResponse:
    """Sets a model's description, or sends the form back with what was typed and what is wrong with it."""
    typed, catalog = request.form.get("description"), container().catalog
    if typed is None:
        return redirect(url_for("pages.model", team=team, name=name), HTTPStatus.SEE_OTHER)
    try:
        catalog.describe(f"{team}/{name}", typed)
    except InvalidInput as error:
        return page(
            "describe_again.html",
            room="models",
            status=status_of(type(error)),
            model=catalog.model(f"{team}/{name}"),
            typed=typed,
            error=error,
        )
    return redirect(url_for("pages.model", team=team, name=name), HTTPStatus.SEE_OTHER)
