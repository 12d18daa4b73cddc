"""Figures that others took."""

from http import HTTPStatus

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.context import actor, container, render
from pt2hub.server.api.performance_shapes import PERFORMANCE, ReportAnswer
from pt2hub.server.api.shapes import TOKEN, json_body
from pt2hub.server.services.report_form import MAX_REPORT_BYTES, Report
from pt2hub.wire.documents import JSON_TYPE, parse_document

routes = APIBlueprint("reports", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])

_HINT = 'Send {"measurements": [...]}, and what it names in "environments": {...}.'


@routes.post(
    "/measurements",
    responses={200: ReportAnswer, 201: ReportAnswer},
    security=TOKEN,
    openapi_extensions=json_body(Report),
)
def report() -> Response:
    """Keeps figures that you took, all of them or none; 200 where all had been delivered before.

    A key is your name for a figure, among all that come with tokens of your token's name.
    """
    request.max_content_length = MAX_REPORT_BYTES
    document = parse_document(request.get_data(cache=False), content_type=JSON_TYPE, hint=_HINT)
    reported = container().reports.report(document, by=actor())
    return render(reported, HTTPStatus.CREATED if reported.accepted else HTTPStatus.OK)
