"""Who signed in with a browser: the cookie, and the proof that a form came from our own page.

A form is believed when three things hold: the browser says that a page of this site sent it, a session's cookie came
with it, and it carries that session's proof. `signing` asks for all three before any view that changes something.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, cast

from flask import g, request

from pt2hub.server.api.context import container
from pt2hub.server.services.web_sessions import LASTING

if TYPE_CHECKING:
    from flask import Response

    from pt2hub.domain.tokens import Actor

COOKIE = "pt2hub_session"
HOST_COOKIE = f"__Host-{COOKIE}"
"""Over HTTPS: browsers take a cookie of such a name from this very host alone, and never over plain HTTP, so that
neither a neighbouring host nor who is on the way can put a session of theirs in its place."""
CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"
_PURPOSE = b"pt2hub form"
_BYTES = hashlib.sha256().digest_size


def visitor() -> Actor | None:
    """Who signed in; None for who only reads."""
    if "visitor" not in g:
        g.visitor = container().web_sessions.actor(_value()) if _value() else None
    return cast("Actor | None", g.visitor)


def csrf() -> str:
    """What every form carries as `csrf`: different in each page, good for this session only.

    It is masked anew each time, so that the length of a compressed page tells nothing about it.
    """
    if visitor() is None:
        return ""
    mask = secrets.token_bytes(_BYTES)
    return base64.urlsafe_b64encode(mask + _xor(mask, _proof())).decode()


def actor() -> Actor:
    """Who sent a form; `signing.check` ran before."""
    found = visitor()
    assert found is not None, "requests that change something are checked before their view"
    return found


def open_session(token: str) -> None:
    """Signs the sender of this request in; `keep` sends the cookie.

    Args:
        token: As it was typed.

    Raises:
        Unauthorized: It is no valid one.
    """
    services = container().web_sessions
    value, before = services.open(token), _value()
    g.session, g.visitor = value, services.actor(value)
    if before:
        services.close(before)


def close_session() -> None:
    """Signs the sender of this request out, wherever else the same cookies are; `keep` takes them back."""
    for value in {_value(), *map(request.cookies.get, (COOKIE, HOST_COOKIE))}:
        if value:
            container().web_sessions.close(value)
    g.session, g.visitor = "", None


def know_nobody() -> None:
    """Goes on as for a reader who did not sign in: the database, which knows, did not answer."""
    g.visitor = None


def keep(response: Response) -> Response:
    """Sends the cookie of a session that this request opened, and takes back those of sessions that it closed."""
    if "session" not in g:
        return response
    ours = (HOST_COOKIE if is_encrypted() else COOKIE) if g.session else None
    for name in (COOKIE, HOST_COOKIE):
        secure = name == HOST_COOKIE
        if name == ours:
            response.set_cookie(
                name, g.session, max_age=LASTING, httponly=True, samesite="Lax", secure=secure
            )
        elif name in request.cookies:
            response.delete_cookie(name, httponly=True, samesite="Lax", secure=secure)
    return response


def is_from_here() -> bool:
    """Whether a page of this site sent this request, as far as the browser says.

    `Sec-Fetch-Site` comes over HTTPS and on loopback, and holds behind proxies that change the host's name; elsewhere
    there is `Origin`, and `X-Forwarded-Host`, which no form of another site can set. A client that sends none of
    them is no browser, so nobody can make it send what it did not mean to.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site in {"same-origin", "none"}
    forwarded = request.headers.get("X-Forwarded-Host", "").partition(",")[0].strip()
    return origin is None or origin.partition("://")[2] in {request.host, forwarded} - {""}


def is_proved() -> bool:
    """Whether this request carries the proof of its session, in a header or a field."""
    given = request.headers.get(CSRF_HEADER) or request.form.get(CSRF_FIELD, "")
    return hmac.compare_digest(_unmasked(given), _proof())


def is_encrypted() -> bool:
    """Whether the reader's connection is HTTPS, also where a proxy ends it without telling us."""
    return request.is_secure or request.headers.get("Origin", "").startswith("https://")


def _value() -> str:
    """The cookie's; behind a proxy that does not tell of HTTPS the name alone says how it came to the browser."""
    plain = "" if request.is_secure else request.cookies.get(COOKIE, "")
    return cast("str", g.get("session", request.cookies.get(HOST_COOKIE, plain)))


def _proof() -> bytes:
    """Derived from the cookie, which only the browser has whole: there is nothing to store."""
    return hmac.digest(_value().encode(), _PURPOSE, "sha256")


def _unmasked(given: str) -> bytes:
    try:
        both = base64.urlsafe_b64decode(given.encode())
    except ValueError:
        return b""
    return _xor(both[:_BYTES], both[_BYTES:]) if len(both) == 2 * _BYTES else b""


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(left, right, strict=True))
