"""Measuring jobs."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.context import actor, body, container, render
from pt2hub.server.api.performance_shapes import PERFORMANCE, MeasureOrder, Measuring
from pt2hub.server.api.shapes import TOKEN, json_body

routes = APIBlueprint("measuring", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])

_MOST_BYTES = 1 << 14
_HINT = 'Send {"reference": "team/name@3"}, and where they are wanted "target", "repeat", "priority" and "beside".'


@routes.post(
    "/measure", responses={200: Measuring}, security=TOKEN, openapi_extensions=json_body(MeasureOrder)
)
def measure() -> Response:
    """Queues a job for each artifact that times it again and builds nothing; one that waits already is joined."""
    order = body(MeasureOrder, most=_MOST_BYTES, what="The order to measure", hint=_HINT)
    jobs = container().measuring.measure(
        order.reference,
        target=order.target,
        repeat=order.repeat,
        priority=order.priority,
        beside=order.beside,
        by=actor(),
    )
    return render(jobs)
