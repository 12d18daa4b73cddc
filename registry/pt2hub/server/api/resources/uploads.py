"""Uploads directly to the storage by presigned URLs."""

from http import HTTPStatus

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.domain.digests import Digest
from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import ARTIFACTS, TOKEN, json_body
from pt2hub.server.api.request_shapes_uploads import PartsWanted, UploadEnd, UploadPath, UploadStart
from pt2hub.wire.uploads import PartRequests, UploadView

routes = APIBlueprint("uploads", __name__, url_prefix="/api/v1/uploads", abp_tags=[ARTIFACTS])

_MAX_BYTES = 1 << 14
_MAX_COMPLETION_BYTES = 1 << 21
"""Enough for ten thousand parts with the longest known ETags, twice over."""
_START = 'Send {"digest": "sha256:...", "size": 1234}.'
_PARTS = 'Send {"parts": [{"number": 1, "md5": "..."}]}, with the MD5 of each part\'s bytes in base64.'
_END = 'Send {"etags": ["..."]} with the ETag that the storage returned for each part; an empty list after a single request.'


@routes.post(
    "",
    responses={200: RootModel[UploadView], 201: RootModel[UploadView]},
    security=TOKEN,
    openapi_extensions=json_body(UploadStart),
)
def begin() -> Response:
    """Start an upload; 200 if the blob is already stored."""
    wanted = body(UploadStart, most=_MAX_BYTES, what="The upload", hint=_START)
    view = container().uploads.begin(Digest(wanted.digest), wanted.size, by=caller())
    return _answer(view, HTTPStatus.OK if view.state == "stored" else HTTPStatus.CREATED)


@routes.post(
    "/<id>/parts",
    responses={200: RootModel[PartRequests]},
    security=TOKEN,
    openapi_extensions=json_body(PartsWanted),
)
def sign(path: UploadPath) -> Response:
    """Presign requests for parts of an upload; repeat for expired ones."""
    wanted = body(PartsWanted, most=_MAX_BYTES, what="The list of parts", hint=_PARTS)
    return _answer(
        container().uploads.sign_parts(path.id, [(part.number, part.md5) for part in wanted.parts])
    )


@routes.post(
    "/<id>/complete",
    responses={200: RootModel[UploadView], 202: RootModel[UploadView]},
    security=TOKEN,
    openapi_extensions=json_body(UploadEnd),
)
def complete(path: UploadPath) -> Response:
    """Complete an upload; 202 while the server is still hashing it: poll the upload."""
    end = body(UploadEnd, most=_MAX_COMPLETION_BYTES, what="The completion of the upload", hint=_END)
    view = container().uploads.complete(path.id, end.etags, by=caller())
    return _answer(view, HTTPStatus.ACCEPTED if view.state == "checking" else HTTPStatus.OK)


@routes.get("/<id>", responses={200: RootModel[UploadView]}, security=TOKEN)
def upload(path: UploadPath) -> Response:
    """Return the state of an upload."""
    return _answer(container().uploads.view(path.id, by=caller()))


@routes.delete("/<id>", responses={204: None}, security=TOKEN)
def cancel(path: UploadPath) -> Response:
    """Cancel an upload and remove its content."""
    container().uploads.cancel(path.id, by=caller())
    return Response(status=HTTPStatus.NO_CONTENT)


def _answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Create a response that must not be cached, since it may contain presigned URLs."""
    response = render(value, status)
    response.headers["Cache-Control"] = "no-store"
    return response
