"""Lineage of versions."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import MODELS, TOKEN, VersionPath, json_body
from pt2hub.server.api.request_shapes_lineage import LineageChange, LineageQuery
from pt2hub.wire.lineage import DerivationList, LineageView

routes = APIBlueprint("lineage", __name__, url_prefix="/api/v1", abp_tags=[MODELS])

_MAX_CHANGE_BYTES = 1 << 16
_HINT = 'Send {"add": ["fine-tuned:team/name@3"], "remove": ["hf:team/name@revision"]}.'
_ADDRESS = "/models/<team>/<name>/versions/<number>/lineage"


@routes.get(_ADDRESS, responses={200: RootModel[LineageView]})
def lineage(path: VersionPath, query: LineageQuery) -> Response:
    """Return what a version is derived from, and what is derived from it; what you may not read is left out."""
    return render(container().lineage.lineage(f"{path.team}/{path.name}", path.number, depth=query.depth))


@routes.patch(
    _ADDRESS,
    responses={200: RootModel[DerivationList]},
    security=TOKEN,
    openapi_extensions=json_body(LineageChange),
)
def change(path: VersionPath) -> Response:
    """Add and remove parents of a version."""
    wanted = body(LineageChange, most=_MAX_CHANGE_BYTES, what="The change of lineage", hint=_HINT)
    found = container().lineage.change(
        f"{path.team}/{path.name}", path.number, add=wanted.add, remove=wanted.remove, by=caller()
    )
    return render(DerivationList(found))
