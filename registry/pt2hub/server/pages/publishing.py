"""Publishing from a pasted spec, checked while it is written."""

from __future__ import annotations

from typing import NoReturn

from pt2hub.errors import NotFound
from pt2hub.server.pages.routes import routes


@routes.route("/publish", methods=["GET", "POST"])
def publish() -> NoReturn:
    raise NotFound("This page is not written yet")


@routes.post("/publish/check")
def check_spec() -> NoReturn:
    raise NotFound("This page is not written yet")
