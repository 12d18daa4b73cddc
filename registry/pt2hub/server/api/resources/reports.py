"""Reports of measurements and evaluations taken outside pt2hub."""

from http import HTTPStatus

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api import permissions
from pt2hub.server.api.context import caller, container, render
from pt2hub.server.api.request_shapes import TOKEN, json_body
from pt2hub.server.api.request_shapes_performance import PERFORMANCE
from pt2hub.server.services.performance.evaluation_form import EvaluationReport
from pt2hub.server.services.performance.report_form import MAX_REPORT_BYTES, Report
from pt2hub.wire.documents import JSON_TYPE, parse_document
from pt2hub.wire.performance import Reported

routes = APIBlueprint("reports", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])

_HINT = 'Send {"measurements": [...]} and the environments they refer to in "environments": {...}.'
_EVALUATION_HINT = 'Send {"evaluations": [...]}.'


@routes.post(
    "/measurements",
    responses={200: RootModel[Reported], 201: RootModel[Reported]},
    security=TOKEN,
    openapi_extensions=json_body(Report),
)
def report() -> Response:
    """Store reported measurements, all or none; 200 if all had been delivered before.

    A key identifies a measurement among all reports from tokens with the same name.
    """
    request.max_content_length = MAX_REPORT_BYTES
    document = parse_document(request.get_data(cache=False), content_type=JSON_TYPE, hint=_HINT)
    reported = container().reports.report(document, by=caller(), check=permissions.require)
    return render(reported, HTTPStatus.CREATED if reported.accepted else HTTPStatus.OK)


@routes.post(
    "/evaluations",
    responses={200: RootModel[Reported], 201: RootModel[Reported]},
    security=TOKEN,
    openapi_extensions=json_body(EvaluationReport),
)
def evaluate() -> Response:
    """Store evaluations of versions, all or none; 200 if all had been delivered before."""
    document = parse_document(request.get_data(cache=False), content_type=JSON_TYPE, hint=_EVALUATION_HINT)
    reported = container().evaluations.report(document, by=caller(), check=permissions.require)
    return render(reported, HTTPStatus.CREATED if reported.accepted else HTTPStatus.OK)
