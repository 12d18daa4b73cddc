"""What models' owners demand of performance."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.performance_shapes import PERFORMANCE, Policy, PolicyChange, PolicyForm
from pt2hub.server.api.shapes import TOKEN, ModelPath, json_body

routes = APIBlueprint("policies", __name__, url_prefix="/api/v1", abp_tags=[PERFORMANCE])

_MAX_BYTES = 1 << 17
_HINT = 'Send {"document": {"gates": [...], "metrics": {...}}, "revision": 3}; the revision is 0 for a first policy.'


@routes.get("/models/<team>/<name>/policy", responses={200: Policy})
def policy(path: ModelPath) -> Response:
    """The policy of a model: what its aliases demand of a version, and when a change counts."""
    return render(container().policies.policy(f"{path.team}/{path.name}"))


@routes.put(
    "/models/<team>/<name>/policy",
    responses={200: Policy},
    security=TOKEN,
    openapi_extensions=json_body(PolicyForm),
)
def put(path: ModelPath) -> Response:
    """Changes the whole policy if it is as you believe; the same change again changes nothing. An admin's token may."""
    change = body(PolicyChange, most=_MAX_BYTES, what="The change of a policy", hint=_HINT)
    view = container().policies.put(
        f"{path.team}/{path.name}", change.document, revision=change.revision, by=caller()
    )
    return render(view)
