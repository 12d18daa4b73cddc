"""Bytes, in and out, streamed."""

from collections.abc import Iterator
from http import HTTPStatus

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from werkzeug.wrappers import Response as WerkzeugResponse

from pt2hub.domain.digests import CHUNK, Digest
from pt2hub.errors import NotFound, TooLarge
from pt2hub.server.api.context import container, context, render
from pt2hub.server.api.shapes import ARTIFACTS, BYTES, TOKEN, DigestPath, Uploaded
from pt2hub.server.blobs.keys import StorageKey

routes = APIBlueprint("blobs", __name__, url_prefix="/api/v1", abp_tags=[ARTIFACTS])


@routes.put(
    "/blobs/<digest>",
    responses={201: Uploaded},
    security=TOKEN,
    openapi_extensions={"requestBody": {"required": True, "content": BYTES}},
)
def upload(path: DigestPath) -> Response:
    """Stores bytes under their digest, which is checked while they arrive; known bytes are kept as they are."""
    limit = context().config.max_blob_bytes
    if (request.content_length or 0) > limit:
        raise TooLarge(
            f"The upload has {request.content_length} bytes; this server takes {limit}.",
            hint="Ask the server's operator to raise PT2HUB_MAX_BLOB_BYTES.",
            context={"limit": limit},
        )
    key = StorageKey.blob(Digest(path.digest))
    size = container().storage.write(key, _chunks(), limit=limit)
    return render({"digest": key.digest, "size": size}, HTTPStatus.CREATED)


@routes.get("/blobs/<digest>", responses={200: {"content": BYTES}, 206: {"content": BYTES}, 416: None})
def download(path: DigestPath) -> WerkzeugResponse:
    """Bytes by their digest, whole or a range of them."""
    key = StorageKey.blob(Digest(path.digest))
    size = container().storage.size(key)
    if size is None:
        raise NotFound(f"There is no blob {key.digest}.", where=key.digest)
    response = _ranged(key, size)
    response.set_etag(key.digest)
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Cache-Control"] = key.cache_control
    return response.make_conditional(request) if response.status_code == HTTPStatus.OK else response


def _ranged(key: StorageKey, size: int) -> Response:
    asked = request.range
    # Several ranges at once, and units other than bytes, may be answered with the whole (RFC 9110, 14.2).
    if asked is None or asked.units != "bytes" or len(asked.ranges) != 1:
        return _content(key, 0, size)
    found = asked.range_for_length(size)
    if found is None:
        response = Response(status=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        response.headers["Content-Range"] = f"bytes */{size}"
        return response
    start, stop = found
    response = _content(key, start, stop)
    response.status_code = HTTPStatus.PARTIAL_CONTENT
    response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return response


def _content(key: StorageKey, start: int, stop: int) -> Response:
    wanted = request.method != "HEAD"  # no file is opened whose bytes nobody reads
    body = container().storage.read(key, start, stop) if wanted else ()
    response = Response(body, content_type=key.content_type, direct_passthrough=True)
    response.content_length = stop - start
    return response


def _chunks() -> Iterator[bytes]:
    while chunk := request.stream.read(CHUNK):
        yield chunk
