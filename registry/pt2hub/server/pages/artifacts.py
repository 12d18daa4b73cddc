"""An artifact: manifest, files, config, kernels, autotune tables, steps."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/artifacts/<digest>")
def artifact(digest: str) -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.get("/artifacts/<digest>/sources")
def sources(digest: str) -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.post("/artifacts/<digest>/measure")
def measure(digest: str) -> NoReturn:
    raise NotFound("This page is not written yet")
