"""Installation of the pages in an application that serves the API."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pt2hub.server.api import docs
from pt2hub.server.pages import paths, problems
from pt2hub.server.pages.assets import PREFIX, Assets
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.compression import compress
from pt2hub.server.pages.navigation import NAVIGATION
from pt2hub.server.pages.templates import ASSETS, environment

if TYPE_CHECKING:
    from flask import Flask

_VIEWS = (
    "front.front",
    "publishing.models",
    "publishing.versions",
    "publishing.description",
    "publishing.derivations",
    "publishing.version_search",
    "publishing.retention",
    "publishing.publish",
    "promotion.aliases",
    "promotion.previews",
    "promotion.yanks",
    "artifacts.artifacts",
    "builds.builds",
    "builds.targets",
    "performance.performance",
    "performance.comparison",
    "performance.diff",
    "performance.changes",
    "search",
    "usage",
    "components",
    "access.login",
    "access.provider",
    "access.tokens",
    "access.teams",
    "access.devices",
    "access.audit",
)
"""Modules of this package that add routes."""


def install(app: Flask) -> None:
    """Add the pages.

    Args:
        app: The application from `api.app.create_app`.
    """
    for name in _VIEWS:
        import_module(f"pt2hub.server.pages.{name}")
    environment()
    assets = Assets.of(paths.static())
    app.extensions[ASSETS] = assets
    public = ((item.label, item.endpoint) for item in NAVIGATION if not item.signed_in)
    app.extensions[docs.SITE] = (("pt2hub", "pages.front"), *public)
    app.register_blueprint(routes)
    app.after_request(compress)
    problems.install(app)
    app.add_url_rule(f"{PREFIX}/<path:name>", endpoint="static", view_func=assets.serve)
