"""Who signed in with a browser: the cookie, and the proof that a form came from our own page.

A form of a reader whose session ended is not lost: it comes back whole, with a field for the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from flask import g

if TYPE_CHECKING:
    from pt2hub.domain.tokens import Actor

COOKIE = "pt2hub_session"
CSRF_FIELD = "csrf"


def visitor() -> Actor | None:
    """Who signed in; None for who only reads."""
    return cast("Actor | None", g.get("visitor"))


def csrf() -> str:
    """What every form carries as `csrf`: different in each page, good for this session only."""
    return cast("str", g.get("csrf", ""))


def actor() -> Actor:
    """Who sent a form; `check` ran before."""
    found = visitor()
    assert found is not None, "requests that change something are checked before their view"
    return found
