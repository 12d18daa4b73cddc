"""Browser sessions: the session cookie and the same-origin check of forms.

A form is accepted if the browser says that a page of this site sent it and the session cookie is valid.
`access.login` checks both before any view that changes something.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flask import g, request

from pt2hub.server.api.context import container, context
from pt2hub.server.api.visitors import COOKIE, HOST_COOKIE, session_value, visitor
from pt2hub.server.services.access.web_sessions import MAX_LIFETIME

if TYPE_CHECKING:
    from flask import Response

    from pt2hub.domain.people import Person
    from pt2hub.domain.tokens import Actor


def actor() -> Actor:
    """Return the sender of a form, after `access.login.check`."""
    found = visitor()
    assert found is not None, "requests that change something are checked before their view"
    return replace(found, request=g.request)


def open_session(token: str) -> None:
    """Open a session for the sender of this request; `set_cookies` sends its cookie.

    Raises:
        Unauthorized: The token is invalid.
    """
    _begin(container().web_sessions.open(token))


def open_session_for(person: Person) -> None:
    """Open a session of a person who just signed in with the provider; `set_cookies` sends its cookie."""
    _begin(container().web_sessions.open_for(person))


def _begin(value: str) -> None:
    services, before = container().web_sessions, session_value()
    g.session, g.visitor = value, services.actor(value)
    if before:
        services.close(before)


def close_session() -> None:
    """Close the sessions of this request's cookies; `set_cookies` deletes the cookies."""
    for value in {session_value(), *map(request.cookies.get, (COOKIE, HOST_COOKIE))}:
        if value:
            container().web_sessions.close(value)
    g.session, g.visitor = "", None


def forget_visitor() -> None:
    """Treat the reader as anonymous, because the database did not answer."""
    g.visitor = None


def set_cookies(response: Response) -> Response:
    """Set the cookie of a session opened by this request and delete those of closed ones."""
    if "session" not in g:
        return response
    ours = (HOST_COOKIE if is_encrypted() else COOKIE) if g.session else None
    for name in (COOKIE, HOST_COOKIE):
        secure = name == HOST_COOKIE
        if name == ours:
            response.set_cookie(
                name, g.session, max_age=MAX_LIFETIME, httponly=True, samesite="Lax", secure=secure
            )
        elif name in request.cookies:
            response.delete_cookie(name, httponly=True, samesite="Lax", secure=secure)
    return response


def is_same_site() -> bool:
    """Return whether the browser says that a page of this site sent this request.

    Browsers send `Sec-Fetch-Site` over HTTPS and on loopback; it is right even behind proxies that change the host.
    Elsewhere `Origin` is compared with the host and `X-Forwarded-Host`, which forms of other sites cannot set. A client
    that sends none of them is not a browser and cannot be tricked into sending a request.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site in {"same-origin", "none"}
    forwarded = request.headers.get("X-Forwarded-Host", "").partition(",")[0].strip()
    return origin is None or origin.partition("://")[2] in {request.host, forwarded} - {""}


def is_encrypted() -> bool:
    """Return whether the reader's connection is HTTPS, even if a proxy ends TLS without saying so."""
    provider = context().config.provider
    return (
        request.is_secure
        or request.headers.get("Origin", "").startswith("https://")
        or (provider is not None and provider.public_url == f"https://{request.host}")
    )
