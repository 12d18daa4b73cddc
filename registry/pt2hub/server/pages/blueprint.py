"""The blueprint of all pages. `installation.install` imports the modules that add routes to it."""

from __future__ import annotations

from flask import Blueprint

from pt2hub.server.api.context import PAGES

routes = Blueprint(PAGES, __name__)
