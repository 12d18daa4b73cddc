"""Signing in with a token, and out; and what runs before every view that changes something.

A form of a reader whose session ended is not lost: it comes back whole, with a field for the token, and goes on.
"""

from __future__ import annotations

import ipaddress
import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import current_app, g, redirect, request, url_for
from werkzeug.datastructures import ImmutableMultiDict

from pt2hub.errors import Forbidden, TooLarge, Unauthorized
from pt2hub.server.pages import sessions
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes
from pt2hub.server.services.access import is_whole
from pt2hub.wire.documents import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.errors import Pt2hubError

TOKEN_FIELD = "pt2hub_token"  # noqa: S105  # the name of a field, apart from those of the forms that it joins
_WHOLE = "Copy it once more: it begins with pt2_ and has 63 characters, without spaces or line breaks inside."
_UNKNOWN = "It was revoked, or is another server's. Ask who runs this server for a new one."
DONE = {"out": "You are signed out."}
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN = frozenset({"pages.sign_in", "pages.sign_out", "pages.forget_machine"})
"""Endpoints that change nothing but the sender's own cookies."""
_MOST_BYTES = 4 * MAX_DOCUMENT_BYTES
"""A spec of the largest size, percent-encoded, and what else a form holds."""
_MOST_FIELDS = 5000
"""One for each alias of a model; half a million, which fit into the bytes, would come back as a page of 200 MB."""
_HERE = re.compile(r"/(?![/\\])[^\\\x00-\x1f\x7f]*")
"""An address on this site: browsers read `//host`, and a backslash for a slash, as another one."""


@routes.before_request
def check() -> Response | None:
    """Lets a request that changes something pass only from a page of this site and from who signed in.

    Raises:
        Forbidden: Another site sent it.
        TooLarge: It has more fields than any form of ours.
    """
    if request.method in _READING:
        return None
    request.max_content_length = request.max_form_memory_size = _MOST_BYTES
    if not sessions.is_from_here():
        raise Forbidden(
            "Another site sent this",
            where="request",
            hint="Nothing was changed. If you meant it, open the page here and send the form from there. A proxy in "
            "front of this server must pass on the name of its host, in Host or X-Forwarded-Host.",
        )
    if len(list(request.form.items(multi=True))) > _MOST_FIELDS:
        raise TooLarge("The form has too many fields", where="request", hint="Nothing was changed.")
    return None if request.endpoint in _OPEN else _check_sender()


@routes.after_request
def keep_session(response: Response) -> Response:
    """Sends cookies of sessions that began or ended."""
    return sessions.keep(response)


@routes.route("/sign-in", methods=["GET", "POST"])
def sign_in() -> Response | WerkzeugResponse:
    """The form for a token, and its answer: a session, and the page that the reader came from."""
    to = within(request.values.get("to", ""))
    if request.method != "POST":
        return _sign_in_page(to)
    try:
        _open(request.form.get("token", ""))
    except Unauthorized as error:
        return _sign_in_page(to, error)
    return redirect(to, HTTPStatus.SEE_OTHER)


@routes.post("/sign-out")
def sign_out() -> Response | WerkzeugResponse:
    """Ends the session; of one that ended already only the cookie is left."""
    if sessions.visitor() and not sessions.is_proved():
        return _again()
    sessions.close_session()
    answer = redirect(url_for("pages.sign_in", done="out"), HTTPStatus.SEE_OTHER)
    # Browsers keep pages for Back as they were left, with what was typed.
    answer.headers["Clear-Site-Data"] = '"cache"'
    return answer


def within(address: str) -> str:
    """A page of this site to go on to; the front page for all other addresses, and for forms' own.

    Args:
        address: As the reader's own address named it.
    """
    path = address.partition("?")[0]
    site = current_app.create_url_adapter(request)
    is_page = site is not None and site.test(path, "GET") and path != url_for("pages.sign_in")
    return address if is_page and _HERE.fullmatch(address) else url_for("pages.front")


def _check_sender() -> Response | None:
    if token := request.form.get(TOKEN_FIELD):
        try:
            _sign_in_within(token)
        except Unauthorized as error:
            return _again(error)
    if not (sessions.visitor() and (token or sessions.is_proved())):
        return _again()
    g.actor = sessions.actor()  # the log names it
    return None


def _open(token: str) -> None:
    """Opens a session; what is wrong with the token is told to who sits before a form, not before a terminal.

    Raises:
        Unauthorized: It is no valid one.
    """
    typed = token.strip()
    try:
        sessions.open_session(typed)
    except Unauthorized as error:
        where = "token"
        if not typed:
            raise Unauthorized("Type or paste your token", where=where) from error
        if not is_whole(typed):
            raise Unauthorized("This is not a whole token", where=where, hint=_WHOLE) from error
        raise Unauthorized("This server does not take the token", where=where, hint=_UNKNOWN) from error


def _sign_in_within(token: str) -> None:
    """Signs in by a form that came back from `_again`; its view does not see the token."""
    _open(token)
    request.form = ImmutableMultiDict(_typed())


def _again(error: Pt2hubError | None = None) -> Response:
    """The form that was sent, as it was typed, to be sent again: with a token where nobody is signed in."""
    signed_in = error is None and sessions.visitor() is not None
    return page(
        "again.html",
        status=HTTPStatus.FORBIDDEN if signed_in else HTTPStatus.UNAUTHORIZED,
        known=signed_in,
        fields=_typed(),
        action=urlsplit(request.url)._replace(scheme="", netloc="").geturl(),
        token_field=TOKEN_FIELD,
        error=error,
        plain=_is_plain(),
    )


def _typed() -> list[tuple[str, str]]:
    ours = {TOKEN_FIELD, sessions.CSRF_FIELD}
    return [(name, value) for name, value in request.form.items(multi=True) if name not in ours]


def _sign_in_page(to: str, error: Pt2hubError | None = None) -> Response:
    return page(
        "sign_in.html",
        status=HTTPStatus.UNAUTHORIZED if error else HTTPStatus.OK,
        to=to,
        error=error,
        plain=_is_plain(),
        done=DONE.get(request.args.get("done", "")),
    )


def _is_plain() -> bool:
    """Whether others on the way could read a token: neither HTTPS nor this machine.

    Browsers send `Sec-Fetch-Site` over HTTPS and on loopback only, so it also tells of a proxy that ends HTTPS.
    """
    trusted = sessions.is_encrypted() or "Sec-Fetch-Site" in request.headers
    return not trusted and not _is_loopback(urlsplit(request.host_url).hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
