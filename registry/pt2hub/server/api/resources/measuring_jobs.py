"""Measuring jobs."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.domain.names import Reference
from pt2hub.server.api import permissions
from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import TOKEN, json_body
from pt2hub.server.api.request_shapes_performance import PERFORMANCE, MeasureOrder
from pt2hub.wire.performance import MeasuringJobs

routes = APIBlueprint("measuring", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])

_MAX_BYTES = 1 << 14
_HINT = 'Send {"reference": "team/name@3"} and optionally "target", "repeat", "priority" and "baseline".'


@routes.post(
    "/measure",
    responses={200: RootModel[MeasuringJobs]},
    security=TOKEN,
    openapi_extensions=json_body(MeasureOrder),
)
def measure() -> Response:
    """Queue a measuring job for each artifact; jobs that are already queued are reused."""
    order = body(MeasureOrder, most=_MAX_BYTES, what="The measuring request", hint=_HINT)
    permissions.require(Reference.parse(order.reference).model)
    jobs = container().measuring_jobs.measure(
        order.reference,
        target=order.target,
        repeat=order.repeat,
        priority=order.priority,
        baseline=order.baseline,
        by=caller(),
    )
    return render(jobs)
