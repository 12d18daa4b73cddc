"""Builds: lists, stages and logs as they come, cancel and retry."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.get("/builds")
def builds() -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.get("/builds/<build>")
def build(build: str) -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.get("/builds/<build>/lines")
def lines(build: str) -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.get("/builds/<build>/stages")
def stages(build: str) -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.post("/builds/<build>/cancel")
def cancel_build(build: str) -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.post("/builds/<build>/retry")
def retry_build(build: str) -> NoReturn:
    raise NotFound("This page is not written yet")
