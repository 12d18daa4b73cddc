"""Puts the pages in front of an application that serves the API already."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pt2hub.server.api import docs
from pt2hub.server.pages import folders, problems
from pt2hub.server.pages.assets import PREFIX, Assets
from pt2hub.server.pages.compressing import compress
from pt2hub.server.pages.rendering import ASSETS
from pt2hub.server.pages.rooms import ROOMS
from pt2hub.server.pages.routes import routes

if TYPE_CHECKING:
    from flask import Flask

_VIEWS = (
    "front",
    "models",
    "versions",
    "aliases",
    "describing",
    "artifacts",
    "builds",
    "performance",
    "comparing",
    "changes",
    "targets",
    "publishing",
    "signing",
)
"""Modules of this package that add routes."""


def install(app: Flask) -> None:
    """Adds the pages.

    Args:
        app: As `api.app.create_app` made it.
    """
    for name in _VIEWS:
        import_module(f"pt2hub.server.pages.{name}")
    assets = Assets.of(folders.static())
    app.extensions[ASSETS] = assets
    open_to_all = ((room.label, room.endpoint) for room in ROOMS if not room.signed_in)
    app.extensions[docs.SITE] = (("pt2hub", "pages.front"), *open_to_all)
    app.register_blueprint(routes)
    app.after_request(compress)
    problems.install(app)
    app.add_url_rule(f"{PREFIX}/<path:name>", endpoint="static", view_func=assets.serve)
