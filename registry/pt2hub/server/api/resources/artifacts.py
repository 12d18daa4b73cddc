"""References, artifacts and manifests."""

import json

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel
from werkzeug.wrappers import Response as WerkzeugResponse

from pt2hub.domain.artifacts import MANIFEST_TYPE
from pt2hub.domain.codec import encode
from pt2hub.domain.compatibility.hosts import MAX_HOST_BYTES
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference
from pt2hub.server.api import permissions
from pt2hub.server.api.context import body, container, render
from pt2hub.server.api.request_shapes import (
    ARTIFACTS,
    DebugLogPath,
    DigestPath,
    HostCheckRequest,
    ManifestPath,
    ReferenceQuery,
    json_body,
)
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.compatibility import YANK_HEADER
from pt2hub.wire.debug_logs import DebugLogsView, DebugLogView
from pt2hub.wire.host_checks import HostCheck
from pt2hub.wire.kernels import KernelsView
from pt2hub.wire.profiles import ProfileView
from pt2hub.wire.resolution import ResolvedReference

routes = APIBlueprint("artifacts", __name__, url_prefix="/api/v1", abp_tags=[ARTIFACTS])

_HINT = 'Send {"reference": "team/name@3", "host": {...}}; pt2hub host --json prints the host.'


@routes.get("/resolve", responses={200: RootModel[ResolvedReference]})
def resolve(query: ReferenceQuery) -> Response:
    """Resolve a reference to a version and its artifacts, pinned by digest."""
    found = container().resolve.resolve(query.reference)
    container().pulls.record(found.model, found.number)
    return render(found)


@routes.post(
    "/resolve", responses={200: RootModel[HostCheck]}, openapi_extensions=json_body(HostCheckRequest)
)
def check() -> Response:
    """Resolve a reference, and say which of its artifacts run on a described machine, and which one suits it best.

    `pt2hub host --json` prints the description of a machine. Nothing is stored.
    """
    asked = body(HostCheckRequest, most=MAX_HOST_BYTES, what="The request", hint=_HINT)
    permissions.require(Reference.parse(asked.reference).model)
    return render(container().host_checks.check(asked.reference, asked.host))


@routes.get("/artifacts/<digest>", responses={200: RootModel[ArtifactView]})
def artifact(path: DigestPath) -> Response:
    """Return an artifact in full detail: config, manifest, members, autotuning, measurements."""
    return render(container().resolve.artifact(Digest(path.digest)))


@routes.get("/artifacts/<digest>/kernels", responses={200: RootModel[KernelsView]})
def kernels(path: DigestPath) -> Response:
    """Return the kernels of an artifact, and the operations of the exported graph that each holds."""
    return render(container().kernels.kernels(path.digest))


@routes.get("/artifacts/<digest>/profile", responses={200: RootModel[ProfileView]})
def profile(path: DigestPath) -> Response:
    """Return where the time of an artifact's calls goes, beside torch.compile's, and what each kernel computes."""
    return render(container().call_profiles.profile(path.digest))


@routes.get("/artifacts/<digest>/debug", responses={200: RootModel[DebugLogsView]})
def debug_logs(path: DigestPath) -> Response:
    """Return which of torch's logs of the compile are recorded for an artifact's code."""
    return render(container().debug_logs.logs(path.digest))


@routes.get("/artifacts/<digest>/debug/<kind>", responses={200: RootModel[DebugLogView]})
def debug_log(path: DebugLogPath) -> Response:
    """Return one of torch's logs of the compile of an artifact's code."""
    return render(container().debug_logs.log(path.digest, path.kind))


@routes.get(
    "/models/<team>/<name>/manifests/<digest>",
    responses={200: {"content": {MANIFEST_TYPE: {"schema": {"type": "object"}}}}},
)
def manifest(path: ManifestPath) -> WerkzeugResponse:
    """Return the bytes of a manifest, whose digest identifies the artifact.

    If its version is yanked, the header `Pt2hub-Yanked` has the reason as JSON.
    """
    key = StorageKey.manifest(Digest(path.digest))
    model = f"{path.team}/{path.name}"
    data, owner = container().resolve.manifest(model, key.digest)
    container().pulls.record(model, owner.number)
    response = Response(data, content_type=MANIFEST_TYPE)
    if owner.yanked:
        response.headers[YANK_HEADER] = json.dumps(encode(owner.yanked))
    response.set_etag(key.digest)
    response.headers["Cache-Control"] = key.cache_control
    return response.make_conditional(request)
