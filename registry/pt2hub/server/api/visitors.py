"""Signed-in readers: whom the session cookie of a browser stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from flask import g, request

from pt2hub.server.api.context import container

if TYPE_CHECKING:
    from pt2hub.domain.tokens import Actor

COOKIE = "pt2hub_session"
HOST_COOKIE = f"__Host-{COOKIE}"
"""The cookie over HTTPS. Browsers accept a cookie with this prefix from this host only and never over plain HTTP, so
neither a neighbouring host nor an attacker on the network can plant a session."""


def visitor() -> Actor | None:
    """Return the signed-in user, None for anonymous readers."""
    if "visitor" not in g:
        value = session_value()
        g.visitor = container().web_sessions.actor(value) if value else None
    return cast("Actor | None", g.visitor)


def session_value() -> str:
    """Return the session cookie's value; behind a proxy that hides HTTPS, its name shows how it was set."""
    plain = "" if request.is_secure else request.cookies.get(COOKIE, "")
    return cast("str", g.get("session", request.cookies.get(HOST_COOKIE, plain)))
