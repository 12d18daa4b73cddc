"""Signing in with a token, and out."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.route("/sign-in", methods=["GET", "POST"])
def sign_in() -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.post("/sign-out")
def sign_out() -> NoReturn:
    raise NotFound("This page is not written yet")
