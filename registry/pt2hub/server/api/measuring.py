"""Measuring jobs."""

from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.performance_shapes import PERFORMANCE

routes = APIBlueprint("measuring", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])
