"""Page that shows each component of the pages, for people who change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import Detail, InvalidInput
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response

_TONES = ("good", "bad", "warn", "busy", "calm")
_STATES = ("succeeded", "running", "queued", "partial", "failed", "none")
_OUTCOMES = ("better", "worse", "same", "inconclusive")
_TARGETS = ("torch2.13-cu130-sm90", "torch2.13-cu126-sm90", "torch2.13-cpu-x86_64_v4")
_VALUES = (5.1, 5.2, 5.1, 5.0, 5.6, 5.7, 5.6)


@routes.get("/components")
def components() -> Response:
    """Return the page of components, with made-up values."""
    error = InvalidInput(
        "priority must be between -100 and 100, got 5000",
        where="priority",
        hint="Use a smaller number.",
        details=(Detail(path="targets[0]", message="unknown target", given="sm9"),),
    )
    return page(
        "components.html",
        tones=_TONES,
        states=_STATES,
        outcomes=_OUTCOMES,
        targets=_TARGETS,
        values=_VALUES,
        error=error,
    )
