"""A version: its targets, spec, gate, provenance, and how to pull it; whether it runs on the reader's machine."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/models/<team>/<name>/versions/<int:number>")
def version(team: str, name: str, number: int) -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.get("/machine")
def machine() -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.post("/machine/forget")
def forget_machine() -> NoReturn:
    raise NotFound("This page is not written yet")
