"""An alias: its history, and forms that move or remove it."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.codec import decode
from pt2hub.errors import AliasMoved, BadResponse, GateRefused, InvalidInput, Pt2hubError
from pt2hub.rendering.comparing import compared
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.moves import Moving, seen_of
from pt2hub.server.pages.numbers import MOST_VERSION, in_address
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes
from pt2hub.wire.performance import GateCheck

if TYPE_CHECKING:
    from typing import Any

    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.wire.shapes import AliasMove, AliasView

DONE = {
    "created": "The alias was made.",
    "moved": "The alias was moved.",
    "forced": "The alias was moved although the policy refused it; the history keeps what it said.",
    "unchanged": "The alias was on that version already; nothing was changed.",
    "removed": "The alias was removed. Its history stays.",
}
_JUDGED = frozenset({"created", "moved", "forced"})
"""After these the page tells what the policy said to the move, which lets much pass that is worth knowing."""
_MOVES = 50
"""Moves on a page."""
_PRODUCTION = ("prod", "live")
"""How aliases begin that teams call what serves their users."""


def in_production(alias: str) -> bool:
    """Whether an alias by its name is of what serves users."""
    return alias.lower().startswith(_PRODUCTION)


@routes.get("/models/<team>/<name>/aliases/<alias>")
def alias(team: str, name: str, alias: str) -> Response:
    """An alias with its history."""
    services, whole, done = container(), f"{team}/{name}", request.args.get("done", "")
    view = services.aliases.alias(whole, alias)
    before = in_address("before", 1, MOST_VERSION, hint="Follow the link below the history.")
    moves = [move for move in view.history if before is None or move.sequence < before]
    return page(
        "alias.html",
        room="models",
        view=view,
        team=team,
        name=name,
        moves_shown=moves[:_MOVES],
        more=moves[_MOVES - 1].sequence if len(moves) > _MOVES else None,
        before=before,
        moving=Moving.of([view], alias=view.name),
        model=services.catalog.model(whole),
        policy=services.policies.policy(whole),
        back=_back(view.last),
        done=DONE.get(done),
        said=services.aliases.said(whole, alias) if done in _JUDGED else (),
    )


@routes.post("/models/<team>/<name>/aliases")
def move_alias(team: str, name: str) -> Response | WerkzeugResponse:
    """Makes an alias or moves it, if it is where the form's page showed it."""
    form = Moving.sent()
    try:
        view = _moved(f"{team}/{name}", form)
    except Pt2hubError as error:
        return _again("move", team, name, form, error)
    return _done(team, name, form.alias, _what_was_done(view, form))


@routes.post("/models/<team>/<name>/aliases/<alias>/remove")
def remove_alias(team: str, name: str, alias: str) -> Response | WerkzeugResponse:
    """Takes an alias away, if it is where the form's page showed it."""
    form = Moving.sent(alias)
    try:
        _remove(f"{team}/{name}", form)
    except Pt2hubError as error:
        return _again("remove", team, name, form, error)
    return _done(team, name, alias, "removed")


def _moved(model: str, form: Moving) -> AliasView:
    aliases, by = container().aliases, sessions.actor()
    told: dict[str, Any] = {"expected": form.expected, "reason": form.reason}
    if form.force:
        return aliases.force(model, form.alias, form.to, **told, by=by)
    return aliases.move(model, form.alias, form.to, **told, by=by.name)


def _remove(model: str, form: Moving) -> None:
    expected = form.expected
    if expected is None:
        raise InvalidInput(
            f"{model}@{form.alias} was on no version when the page was shown",
            where="alias",
            hint="There is nothing to take away.",
        )
    container().aliases.remove(
        model, form.alias, expected=expected, reason=form.reason, by=sessions.actor().name
    )


def _what_was_done(view: AliasView, form: Moving) -> str:
    if view.number == form.expected:
        return "unchanged"
    if view.last.forced:
        return "forced"
    return "moved" if view.last.before else "created"


def _done(team: str, name: str, alias: str, what: str) -> WerkzeugResponse:
    to = url_for("pages.alias", team=team, name=name, alias=alias, done=what)
    return redirect(to, HTTPStatus.SEE_OTHER)


def _again(doing: str, team: str, name: str, form: Moving, error: Pt2hubError) -> Response:
    """The form again, with everything that was typed; whoever sends it again has read where the alias is now."""
    services, whole = container(), f"{team}/{name}"
    model, refused = services.catalog.model(whole), _refused(error)
    if isinstance(error, AliasMoved):
        form = replace(form, seen=seen_of(services.aliases.aliases(whole).aliases))
    return page(
        "alias_again.html",
        room="models",
        status=status_of(type(error)),
        doing=doing,
        team=team,
        name=name,
        model=model,
        policy=services.policies.policy(whole),
        moving=form,
        error=_without_details(error) if refused else error,
        refused=refused,
    )


def _without_details(error: Pt2hubError) -> Pt2hubError:
    """An error whose details are shown as a table."""
    return type(error)(error.message, where=error.where, hint=error.hint, context=error.context)


def _refused(error: Pt2hubError) -> list[tuple[GateCheck, tuple[str, ...]]]:
    """What the gates found, each with its comparison as a row: metric, before, after, change, verdict, how."""
    if not isinstance(error, GateRefused):
        return []
    try:
        checks = decode(tuple[GateCheck, ...], error.context.get("refused", []))
    except BadResponse:
        return []
    return [(check, compared(check.comparison) if check.comparison else ()) for check in checks]


def _back(last: AliasMove) -> int | None:
    """Where a roll back would put the alias; None where it was on no other version before its last move."""
    return last.before if last.before != last.after else None
