"""Page of tokens: a person's own, and for admins those of services."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.tokens import Scope
from pt2hub.errors import Pt2hubError, UsageError
from pt2hub.rendering.times import count_seconds
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.access.token_forms import LIFETIMES, begin_form, read_form
from pt2hub.server.pages.access.token_list import TokenListQuery
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_ID
from pt2hub.server.pages.templates import page
from pt2hub.server.services.access.token_management import DEFAULT_OVERLAP

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.domain.tokens import TokenInfo
    from pt2hub.server.pages.access.token_forms import TokenForm
    from pt2hub.wire.tokens import CreatedToken

_TOKEN = f"/tokens/<int(max={MAX_ID}):token>"
_DONE = {"revoked": "The token was revoked."}


@routes.get("/tokens")
def tokens() -> Response:
    """List tokens, with a form for a new one."""
    return _page(done=_DONE.get(request.args.get("done", "")))


@routes.post("/tokens")
def create_token() -> Response:
    """Create a token: the person's own or, as an admin, one of a service. It is shown this once."""
    form, made, error = None, None, None
    try:
        form = read_form(request.form)
        made = _create(form)
    except UsageError as caught:
        error = caught
    return _page(form=form if error else None, made=made, error=error)


@routes.post(f"{_TOKEN}/rotate")
def rotate_token(token: int) -> Response:
    """Replace a token by one that allows the same; the old one works for a day longer."""
    made = container().token_management.rotate(token, overlap=DEFAULT_OVERLAP, by=sessions.actor())
    return _page(made=made)


@routes.post(f"{_TOKEN}/revoke")
def revoke_token(token: int) -> WerkzeugResponse:
    """Revoke a token."""
    container().token_management.revoke(token, by=sessions.actor())
    return redirect(url_for("pages.tokens", done="revoked"), HTTPStatus.SEE_OTHER)


def _create(form: TokenForm) -> CreatedToken:
    by, management = sessions.actor(), container().token_management
    create = management.create if form.service or by.person is None else management.create_own
    return create(form.name, scopes=form.scopes, patterns=form.patterns, lasting=form.lasting, by=by)


def _page(
    *,
    form: TokenForm | None = None,
    made: CreatedToken | None = None,
    error: Pt2hubError | None = None,
    done: str | None = None,
) -> Response:
    by, query = sessions.actor(), TokenListQuery.read()
    found = container().token_management.tokens(by)
    valid = [item for item in found if is_valid(item)]
    response = page(
        "tokens.html",
        section="tokens",
        status=status_of(type(error)) if error else HTTPStatus.CREATED if made else HTTPStatus.OK,
        actor=by,
        query=query,
        shown=query.select(valid),
        has_valid=bool(valid),
        ended=len(found) - len(valid),
        form=form or begin_form(by),
        scopes=[scope for scope in Scope if by.may(scope)],
        lifetimes=LIFETIMES,
        may_create=by.admin or (by.person is not None and by.id is None and bool(by.permissions)),
        is_person=by.person is not None and by.id is None,
        made=made,
        error=error,
        done=done,
    )
    if made:
        response.headers["Cache-Control"] = "no-store"
    return response


def is_valid(token: TokenInfo) -> bool:
    """Return whether a token is neither revoked nor expired."""
    return not token.revoked_at and (not token.expires_at or count_seconds(token.expires_at) == 0)
