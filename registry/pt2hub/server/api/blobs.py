"""Bytes, in and out, streamed."""

from collections.abc import Iterator
from functools import partial
from http import HTTPStatus

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from werkzeug.exceptions import ClientDisconnected
from werkzeug.wrappers import Response as WerkzeugResponse

from pt2hub.domain.digests import CHUNK, Digest
from pt2hub.errors import NotFound, StorageFull, TooLarge, UploadTruncated
from pt2hub.server.api.context import container, context, render
from pt2hub.server.api.ranges import Content, is_known, respond
from pt2hub.server.api.shapes import ARTIFACTS, BYTES, TOKEN, DigestPath, Uploaded
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.ports import Transfers
from pt2hub.server.services.uploads import SIGNED_SECONDS

routes = APIBlueprint("blobs", __name__, url_prefix="/api/v1", abp_tags=[ARTIFACTS])

RESERVE_BYTES = 64 << 20
"""Kept free on the storage's disk: the embedded PostgreSQL and the logs lie there too and stop without it."""
_HOLDER = "api"


@routes.put(
    "/blobs/<digest>",
    responses={201: Uploaded},
    security=TOKEN,
    openapi_extensions={"requestBody": {"required": True, "content": BYTES}},
)
def upload(path: DigestPath) -> Response:
    """Stores bytes under their digest, which is checked while they arrive; known bytes are kept as they are."""
    key = StorageKey.blob(Digest(path.digest))
    storage, limit = container().storage, context().config.max_blob_bytes
    new = storage.size(key) is None
    _admit(request.content_length or 0, limit, new=new)
    size = container().blobs.write(key, _received(new=new), holder=_HOLDER, limit=limit)
    return render({"digest": key.digest, "size": size}, HTTPStatus.CREATED)


@routes.get(
    "/blobs/<digest>",
    responses={
        200: {"content": BYTES},
        206: {"content": BYTES},
        307: {"description": "The storage has them: `Location`, for some minutes"},
    },
)
def download(path: DigestPath) -> WerkzeugResponse:
    """Bytes by their digest, whole or a range of them; or where the storage itself has them."""
    key, storage = StorageKey.blob(Digest(path.digest)), container().storage
    if isinstance(storage, Transfers) and request.method == "GET" and not is_known(key.digest):
        return _elsewhere(storage, key)
    size = storage.size(key)
    if size is None:
        raise _unknown(key)
    read = partial(storage.read, key)
    return respond(Content(key.digest, size, key.content_type, key.cache_control, read))


@routes.get("/artifacts/<digest>/model.pt2", responses={200: {"content": BYTES}, 206: {"content": BYTES}})
def model(path: DigestPath) -> WerkzeugResponse:
    """The artifact as one file that stock PyTorch loads, whole or a range of it.

    It is assembled while it is sent; its digest, which is the ETag, was recorded when it was built. A range
    costs the server the reading of everything before it.
    """
    service = container().single_file
    found = service.find(Digest(path.digest))
    key = StorageKey.blob(found.config.single_file.digest)
    read = partial(service.chunks, found)
    response = respond(
        Content(key.digest, found.config.single_file.size, key.content_type, key.cache_control, read)
    )
    response.headers["Content-Disposition"] = f'attachment; filename="{found.name}"'
    return response


def _elsewhere(storage: Transfers, key: StorageKey) -> Response:
    """Sends whoever asks to the storage, which serves ranges too: 307 keeps the header that asks for one."""
    try:
        signed = storage.sign_read(key, seconds=SIGNED_SECONDS)
    except NotFound as exc:
        raise _unknown(key) from exc
    # The address is a secret for as long as it is valid.
    headers = {"Location": signed.url, "Cache-Control": "no-store"}
    return Response(status=HTTPStatus.TEMPORARY_REDIRECT, headers=headers)


def _unknown(key: StorageKey) -> NotFound:
    return NotFound(f"There is no blob {key.digest}.", where=key.digest)


def _admit(announced: int, limit: int, *, new: bool) -> None:
    """Refuses an upload by what its headers announce, before a byte of it is read."""
    if announced > limit:
        raise TooLarge(
            f"The upload has {announced} bytes; this server takes {limit}.",
            hint="Ask the server's operator to raise PT2HUB_MAX_BLOB_BYTES.",
            context={"limit": limit},
        )
    if new:
        _check_room(announced)


def _check_room(needed: int) -> None:
    free = container().storage.free()
    if free is not None and free < needed + RESERVE_BYTES:
        raise StorageFull(
            f"The upload needs {needed} bytes more; the storage has room for {max(0, free - RESERVE_BYTES)}.",
            hint="Ask the server's operator to free space or to move the storage (PT2HUB_STORAGE).",
            context={"announced": request.content_length, "free": free, "reserve": RESERVE_BYTES},
        )


def _received(*, new: bool) -> Iterator[bytes]:
    """The request's body in pieces.

    Args:
        new: Whether it takes room; others may take it at the same time, and a chunked one announces nothing.

    Raises:
        UploadTruncated: It ended too early.
        StorageFull: What is kept free would be needed.
    """
    received, announced = 0, request.content_length
    while True:
        try:
            chunk = request.stream.read(CHUNK)
        except (ClientDisconnected, OSError) as exc:  # OSError: how gunicorn reports a cut chunked body
            raise _truncated(received, announced) from exc
        received += len(chunk)
        if not chunk and announced is not None and received < announced:
            raise _truncated(received, announced)
        if not chunk:
            return
        if new:
            _check_room(len(chunk))
        yield chunk


def _truncated(received: int, announced: int | None) -> UploadTruncated:
    expected = "its end was not" if announced is None else f"{announced} were announced"
    return UploadTruncated(
        f"{received} bytes of the upload were received; {expected}.",
        hint="Upload it again; where this repeats, look for a proxy with a limit on time or size.",
        context={"announced": announced, "received": received},
    )
