"""Page of an alias move before it is made: every promotion check, and the form that moves the alias."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import request

from pt2hub.errors import Pt2hubError
from pt2hub.rendering.promotions import check_rows, summary
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.api.visitors import visitor
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.promotion.alias_forms import AliasForm
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response

    from pt2hub.wire.performance import PromotionPreview


@routes.get("/models/<team>/<name>/promotion")
def promotion(team: str, name: str) -> Response:
    """Show which checks a move would pass or fail for this reader, without moving anything."""
    services, whole = container(), f"{team}/{name}"
    model = services.catalog.model(whole)
    form = AliasForm.of(
        services.aliases.aliases(whole).aliases,
        alias=request.args.get("alias", "").strip(),
        number=request.args.get("number", "").strip() or request.args.get("choice", "").strip(),
    )
    form = replace(form, reason=request.args.get("reason", ""))
    error, found = _preview(whole, form)
    return page(
        "promotion.html",
        section="models",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        team=team,
        name=name,
        model=model,
        policy=services.policies.policy(whole),
        alias_form=form,
        error=error,
        preview=found,
        checks=check_rows(found.checks) if found else (),
        summary=summary(found) if found else "",
    )


def _preview(model: str, form: AliasForm) -> tuple[Pt2hubError | None, PromotionPreview | None]:
    reader = visitor()
    try:
        return None, container().aliases.preview(
            model, form.alias, form.to, by=reader.principal if reader else None
        )
    except Pt2hubError as error:
        return error, None
