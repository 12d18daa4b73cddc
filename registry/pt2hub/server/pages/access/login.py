"""Login and logout, and the checks before every view that changes something.

If the session has ended, the submitted form comes back complete with a token field, so nothing typed is lost.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import current_app, g, redirect, request, url_for
from werkzeug.datastructures import ImmutableMultiDict

from pt2hub.errors import Forbidden, TooLarge, Unauthorized
from pt2hub.server.api import permissions
from pt2hub.server.api.client_address import client_address
from pt2hub.server.api.context import container, context
from pt2hub.server.api.problems import status_of
from pt2hub.server.api.visitors import visitor
from pt2hub.server.config import is_loopback
from pt2hub.server.pages import sessions
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page
from pt2hub.server.services.access.tokens import is_whole
from pt2hub.wire.documents import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.errors import Pt2hubError

TOKEN_FIELD = "pt2hub_token"  # noqa: S105  # a field name that no other form uses
_WHOLE = "Copy it again: a token starts with pt2_ and has 63 characters, without spaces or line breaks."
_UNKNOWN = "It was revoked or belongs to another server. Ask the administrator of this server for a new one."
DONE = {"out": "You are signed out."}
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_PUBLIC = frozenset({"pages.sign_in", "pages.sign_in_answer", "pages.sign_in_elsewhere", "pages.sign_out"})
"""Endpoints that change nothing but the sender's own cookies."""
_MAX_BYTES = 4 * MAX_DOCUMENT_BYTES
"""A spec of the largest size, percent-encoded, and the other fields of a form."""
_MAX_FIELDS = 5000
"""One per alias of a model. Half a million fields fit into the bytes, but would come back as a page of 200 MB."""
_LOCAL_PATH = re.compile(r"/(?![/\\])[^\\\x00-\x1f\x7f]*")
"""A path on this site. Browsers read `//host`, and a backslash as a slash, as another site."""


@routes.before_request
def check() -> Response | WerkzeugResponse | None:
    """Accept requests that change something only from pages of this site and signed-in users; see `permissions` for others.

    Raises:
        Forbidden: Another site sent the request.
        TooLarge: The form has too many fields.
    """
    if request.method in _SAFE_METHODS:
        return _check_reader()
    request.max_content_length = request.max_form_memory_size = _MAX_BYTES
    if not sessions.is_same_site():
        raise Forbidden(
            "The form was sent from another site",
            where="request",
            hint="Nothing was changed. Open the page on this site and submit the form there. A proxy in front of this "
            "server must pass on its host name in Host or X-Forwarded-Host.",
        )
    if len(list(request.form.items(multi=True))) > _MAX_FIELDS:
        raise TooLarge("The form has too many fields", where="request", hint="Nothing was changed.")
    if request.endpoint in _PUBLIC:
        permissions.authorise()
        return None
    return _check_sender()


@routes.after_request
def keep_session(response: Response) -> Response:
    """Set and delete session cookies."""
    return sessions.set_cookies(response)


@routes.route("/sign-in", methods=["GET", "POST"])
def sign_in() -> Response | WerkzeugResponse:
    """Show the sign-in form; on submit, open a session and return to the previous page."""
    to = local_url(request.values.get("to", ""))
    if request.method != "POST":
        return sign_in_page(to)
    try:
        _open(request.form.get("token", ""))
    except Unauthorized as error:
        return sign_in_page(to, error)
    return redirect(to, HTTPStatus.SEE_OTHER)


@routes.post("/sign-out")
def sign_out() -> WerkzeugResponse:
    """Close the session."""
    sessions.close_session()
    answer = redirect(url_for("pages.sign_in", done="out"), HTTPStatus.SEE_OTHER)
    # Browsers keep pages for Back, including what was typed.
    answer.headers["Clear-Site-Data"] = '"cache"'
    return answer


def local_url(address: str) -> str:
    """Return the URL if it is a page of this site other than those for signing in, else the front page."""
    path = address.partition("?")[0]
    site = current_app.create_url_adapter(request)
    is_page = site is not None and site.test(path, "GET") and not path.startswith(url_for("pages.sign_in"))
    return address if is_page and _LOCAL_PATH.fullmatch(address) else url_for("pages.front")


def _check_reader() -> WerkzeugResponse | None:
    """Lead readers who must sign in to the page for it, and back."""
    if permissions.needs_token():
        if visitor() is None:
            address = request.full_path.rstrip("?")
            return redirect(url_for("pages.sign_in", to=address), HTTPStatus.SEE_OTHER)
        g.actor = sessions.actor()
    permissions.authorise()
    return None


def _check_sender() -> Response | None:
    if token := request.form.get(TOKEN_FIELD):
        try:
            _sign_in_with_form(token)
        except Unauthorized as error:
            return _resubmission_page(error)
    if not visitor():
        return _resubmission_page()
    g.actor = sessions.actor()
    permissions.authorise()
    return None


def _open(token: str) -> None:
    """Open a session; error messages are worded for a form.

    Raises:
        Unauthorized: The token is invalid.
        RateLimited: There were too many attempts from the sender's address.
    """
    container().rate_limits.count_sign_in(client_address())
    typed = token.strip()
    try:
        sessions.open_session(typed)
    except Unauthorized as error:
        where = "token"
        if not typed:
            raise Unauthorized("Token is required", where=where) from error
        if not is_whole(typed):
            raise Unauthorized("Invalid token", where=where, hint=_WHOLE) from error
        raise Unauthorized("Unknown token", where=where, hint=_UNKNOWN) from error


def _sign_in_with_form(token: str) -> None:
    """Sign in with a resubmitted form, and remove the token from it."""
    _open(token)
    request.form = ImmutableMultiDict(_form_fields())


def _resubmission_page(error: Pt2hubError | None = None) -> Response:
    """Return the submitted form unchanged, to be submitted again with a token."""
    return page(
        "resubmit.html",
        status=HTTPStatus.UNAUTHORIZED,
        fields=_form_fields(),
        action=urlsplit(request.url)._replace(scheme="", netloc="").geturl(),
        token_field=TOKEN_FIELD,
        error=error,
        plain=_is_unprotected(),
        provider=context().config.provider,
    )


def _form_fields() -> list[tuple[str, str]]:
    return [(name, value) for name, value in request.form.items(multi=True) if name != TOKEN_FIELD]


def sign_in_page(to: str, error: Pt2hubError | None = None) -> Response:
    """Return the page with all ways to sign in, and why the last attempt failed."""
    return page(
        "sign_in.html",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        provider=context().config.provider,
        to=to,
        error=error,
        plain=_is_unprotected(),
        done=DONE.get(request.args.get("done", "")),
    )


def _is_unprotected() -> bool:
    """Return whether others on the network could read a token: neither HTTPS nor this machine.

    Browsers send `Sec-Fetch-Site` over HTTPS and on loopback only, so it also reveals a proxy that ends TLS.
    """
    trusted = sessions.is_encrypted() or "Sec-Fetch-Site" in request.headers
    host = urlsplit(request.host_url).hostname or ""
    return not (trusted or is_loopback(host) or host.endswith(".localhost"))
