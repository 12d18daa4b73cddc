"""Uploads that go to the storage directly: how they begin, where their bytes go, how they end."""

from http import HTTPStatus

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.domain.digests import Digest
from pt2hub.server.api.context import actor, body, container, render
from pt2hub.server.api.shapes import ARTIFACTS, TOKEN, json_body
from pt2hub.server.api.upload_shapes import Parts, PartsWanted, Upload, UploadEnd, UploadPath, UploadStart

routes = APIBlueprint("uploads", __name__, url_prefix="/api/v1/uploads", abp_tags=[ARTIFACTS])

_MOST_BYTES = 1 << 14
_MOST_BYTES_AT_END = 1 << 21
"""Of ten thousand parts, each with an ETag as long as any server writes them, twice over."""
_START = 'Send {"digest": "sha256:...", "size": 1234}.'
_PARTS = 'Send {"parts": [{"number": 1, "md5": "..."}]}, with the MD5 of each part\'s bytes in base64.'
_END = 'Send {"etags": ["..."]} with what the storage answered for each part; an empty list after a single request.'


@routes.post(
    "", responses={200: Upload, 201: Upload}, security=TOKEN, openapi_extensions=json_body(UploadStart)
)
def begin() -> Response:
    """Says how bytes get into the storage; 200 where they are there already."""
    wanted = body(UploadStart, most=_MOST_BYTES, what="The upload", hint=_START)
    view = container().uploads.begin(Digest(wanted.digest), wanted.size, by=actor())
    return _answer(view, HTTPStatus.OK if view.state == "stored" else HTTPStatus.CREATED)


@routes.post("/<id>/parts", responses={200: Parts}, security=TOKEN, openapi_extensions=json_body(PartsWanted))
def sign(path: UploadPath) -> Response:
    """Says where parts of an upload go; ask again for those whose time is over."""
    wanted = body(PartsWanted, most=_MOST_BYTES, what="The list of parts", hint=_PARTS)
    return _answer(
        container().uploads.sign_parts(path.id, [(part.number, part.md5) for part in wanted.parts])
    )


@routes.post(
    "/<id>/complete",
    responses={200: Upload, 202: Upload},
    security=TOKEN,
    openapi_extensions=json_body(UploadEnd),
)
def complete(path: UploadPath) -> Response:
    """Ends an upload whose bytes were sent; 202 while the server still hashes them: look at it again."""
    end = body(UploadEnd, most=_MOST_BYTES_AT_END, what="The end of the upload", hint=_END)
    view = container().uploads.complete(path.id, end.etags)
    return _answer(view, HTTPStatus.ACCEPTED if view.state == "checking" else HTTPStatus.OK)


@routes.get("/<id>", responses={200: Upload}, security=TOKEN)
def upload(path: UploadPath) -> Response:
    """An upload, and what is to be done next."""
    return _answer(container().uploads.view(path.id))


@routes.delete("/<id>", responses={204: None}, security=TOKEN)
def cancel(path: UploadPath) -> Response:
    """Gives an upload up: what was sent is removed."""
    container().uploads.cancel(path.id)
    return Response(status=HTTPStatus.NO_CONTENT)


def _answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A value that may hold signed addresses, which nobody on the way may keep."""
    response = render(value, status)
    response.headers["Cache-Control"] = "no-store"
    return response
