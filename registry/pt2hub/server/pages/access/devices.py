"""Page on which a person decides about a device that asks for a token."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import request

from pt2hub.domain.tokens import Scope
from pt2hub.errors import Pt2hubError, UsageError
from pt2hub.server.api.client_address import client_address
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.access.token_forms import LIFETIMES, begin_form, read_form
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response

    from pt2hub.domain.people import DeviceRequest
    from pt2hub.server.pages.access.token_forms import TokenForm

_DONE = {
    "approve": "The device gets its token. You can close this page.",
    "deny": "The device gets no token. You can close this page.",
}


@routes.get("/device")
def device() -> Response:
    """Ask for the code of a device, or show what the device with the code in the URL asks for."""
    code = request.args.get("user_code", "").strip()
    if not code:
        return _page()
    try:
        found = _find(code)
    except UsageError as error:
        return _page(code=code, error=error)
    return _page(code=found.user_code, found=found)


@routes.post("/device")
def decide_device() -> Response:
    """Approve or deny a device's request."""
    code, by = request.form.get("user_code", ""), sessions.actor()
    found, form = None, None
    try:
        found = _find(code)
        if request.form.get("decision") == "approve":
            form = read_form(request.form)
            container().devices.approve(
                code, form.name, scopes=form.scopes, patterns=form.patterns, lasting=form.lasting, by=by
            )
            return _page(done=_DONE["approve"])
        container().devices.deny(code, by=by)
    except UsageError as error:
        return _page(code=code, found=found, form=form, error=error)
    return _page(done=_DONE["deny"])


def _find(code: str) -> DeviceRequest:
    container().rate_limits.count_sign_in(client_address())  # nobody tries codes of others
    return container().devices.find(code)


def _page(
    *,
    code: str = "",
    found: DeviceRequest | None = None,
    form: TokenForm | None = None,
    error: Pt2hubError | None = None,
    done: str | None = None,
) -> Response:
    by = sessions.actor()
    return page(
        "device.html",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        actor=by,
        code=code,
        found=found,
        form=form or begin_form(by, found.client if found else ""),
        scopes=[scope for scope in Scope if by.may(scope)],
        lifetimes=LIFETIMES,
        error=error,
        done=done,
    )
