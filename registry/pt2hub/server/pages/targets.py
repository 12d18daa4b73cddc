"""Targets and workers, and what each is doing."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/targets")
def targets() -> NoReturn:
    raise NotFound("This page is not written yet")
