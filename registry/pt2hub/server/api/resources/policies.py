"""Performance policies of models."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import TOKEN, ModelPath, json_body
from pt2hub.server.api.request_shapes_performance import PERFORMANCE, PolicyChange, PolicyForm
from pt2hub.wire.performance import PolicyView

routes = APIBlueprint("policies", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])

_MAX_BYTES = 1 << 17
_HINT = 'Send {"document": {"checks": [...], "metrics": {...}}, "revision": 3}; the revision is 0 for a first policy.'


@routes.get("/models/<team>/<name>/policy", responses={200: RootModel[PolicyView]})
def policy(path: ModelPath) -> Response:
    """Return a model's policy: promotion checks and thresholds of metrics."""
    return render(container().policies.policy(f"{path.team}/{path.name}"))


@routes.put(
    "/models/<team>/<name>/policy",
    responses={200: RootModel[PolicyView]},
    security=TOKEN,
    openapi_extensions=json_body(PolicyForm),
)
def put(path: ModelPath) -> Response:
    """Replace a model's policy if it has the expected revision; repeating the same change has no effect. Requires an admin token."""
    change = body(PolicyChange, most=_MAX_BYTES, what="The policy change", hint=_HINT)
    view = container().policies.put(
        f"{path.team}/{path.name}", change.document, revision=change.revision, by=caller()
    )
    return render(view)
