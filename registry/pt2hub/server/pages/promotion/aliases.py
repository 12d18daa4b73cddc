"""Page of an alias: its history, and forms that move or remove it."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.codec import decode
from pt2hub.errors import (
    AliasMoved,
    BadResponse,
    Forbidden,
    InvalidInput,
    PromotionCheckFailed,
    Pt2hubError,
)
from pt2hub.rendering.alias_answers import answer_alias
from pt2hub.rendering.promotions import check_rows
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_VERSION, query_number
from pt2hub.server.pages.promotion.alias_cards import compose_card
from pt2hub.server.pages.promotion.alias_forms import AliasForm, seen_of
from pt2hub.server.pages.promotion.version_choices import compose_choices
from pt2hub.server.pages.templates import page
from pt2hub.wire.performance import PromotionCheckResult

if TYPE_CHECKING:
    from typing import Any

    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.wire.responses import AliasView

DONE = {
    "created": "Alias created.",
    "moved": "Alias moved.",
    "forced": "Alias moved although the policy refused it. The refusal is recorded in the history.",
    "unchanged": "The alias is already on that version; nothing was changed.",
    "removed": "Alias removed. Its history is kept.",
}
_CHECKED = frozenset({"created", "moved", "forced"})
"""Moves after which the page shows the policy results, including those of passed checks."""
_MOVES = 50
"""Moves per page."""
_CHOICES = 20
"""Newest versions that the form offers."""


@routes.get("/models/<team>/<name>/aliases/<alias>")
def alias(team: str, name: str, alias: str) -> Response:
    """Show an alias with its history."""
    services, whole, done = container(), f"{team}/{name}", request.args.get("done", "")
    view = services.aliases.alias(whole, alias)
    before = query_number("before", 1, MAX_VERSION, hint="Follow the link below the history.")
    moves = [move for move in view.history if before is None or move.sequence < before]
    model = services.catalog.model(whole)
    versions = services.catalog.versions(whole, limit=_CHOICES).versions
    named = {item.number for item in versions} | {move.before or 0 for move in view.history[:1]}
    speeds = services.performance.main_speeds(whole, view.number, sorted(named | {view.number or 0}))
    back = services.aliases.rollbacks(whole).get(view.name)
    return page(
        "alias.html",
        section="models",
        view=view,
        team=team,
        name=name,
        moves=moves[:_MOVES],
        more=moves[_MOVES - 1].sequence if len(moves) > _MOVES else None,
        before=before,
        alias_form=AliasForm.of([view], alias=view.name),
        model=model,
        policy=services.policies.policy(whole),
        back=back,
        card=compose_card(view, speeds, back),
        answer=answer_alias(view, model.damaged.get(view.name, ())),
        rolls_back=request.args.get("action") == "rollback",
        choices=compose_choices(versions, speeds, view.number),
        done=DONE.get(done),
        policy_results=services.aliases.explain_last_move(whole, alias) if done in _CHECKED else (),
    )


@routes.post("/models/<team>/<name>/aliases")
def move_alias(team: str, name: str) -> Response | WerkzeugResponse:
    """Create or move an alias, if it is still where the form showed it."""
    form = AliasForm.from_request()
    try:
        view = _move(f"{team}/{name}", form)
    except Pt2hubError as error:
        return _retry_page("move", team, name, form, error)
    return _redirect_to_alias(team, name, form.alias, _outcome(view, form))


@routes.post("/models/<team>/<name>/aliases/<alias>/remove")
def remove_alias(team: str, name: str, alias: str) -> Response | WerkzeugResponse:
    """Remove an alias, if it is still where the form showed it."""
    form = AliasForm.from_request(alias)
    try:
        _remove(f"{team}/{name}", form)
    except Pt2hubError as error:
        return _retry_page("remove", team, name, form, error)
    return _redirect_to_alias(team, name, alias, "removed")


def _move(model: str, form: AliasForm) -> AliasView:
    aliases, by = container().aliases, sessions.actor()
    arguments: dict[str, Any] = {"expected": form.expected, "reason": form.reason}
    if form.force:
        return aliases.force(model, form.alias, form.to, **arguments, by=by)
    return aliases.move(model, form.alias, form.to, **arguments, by=by)


def _remove(model: str, form: AliasForm) -> None:
    expected = form.expected
    if expected is None:
        raise InvalidInput(
            f"Alias {model}@{form.alias} did not exist when the page was loaded",
            where="alias",
            hint="Reload the page to see where it is now.",
        )
    container().aliases.remove(model, form.alias, expected=expected, reason=form.reason, by=sessions.actor())


def _outcome(view: AliasView, form: AliasForm) -> str:
    if view.number == form.expected:
        return "unchanged"
    if view.last.forced:
        return "forced"
    return "moved" if view.last.before else "created"


def _redirect_to_alias(team: str, name: str, alias: str, what: str) -> WerkzeugResponse:
    to = url_for("pages.alias", team=team, name=name, alias=alias, done=what)
    return redirect(to, HTTPStatus.SEE_OTHER)


def _retry_page(action: str, team: str, name: str, form: AliasForm, error: Pt2hubError) -> Response:
    """Return the form with its error and everything that was typed; submitting it again accepts the alias's current version."""
    services, whole = container(), f"{team}/{name}"
    model, refused = services.catalog.model(whole), _refusal_rows(error)
    if isinstance(error, AliasMoved):
        form = replace(form, seen=seen_of(services.aliases.aliases(whole).aliases))
    return page(
        "alias_retry.html",
        section="models",
        status=status_of(type(error)),
        action=action,
        team=team,
        name=name,
        model=model,
        policy=services.policies.policy(whole),
        alias_form=form,
        error=error.replace(details=()) if refused else error,  # which are shown as a table
        refused=refused,
    )


def _refusal_rows(error: Pt2hubError) -> tuple[tuple[str, ...], ...]:
    """Return the failed promotion checks as rows of a table."""
    if not isinstance(error, PromotionCheckFailed | Forbidden):
        return ()
    try:
        checks = decode(tuple[PromotionCheckResult, ...], error.context.get("refused", []))
    except BadResponse:
        return ()
    return check_rows(checks)
