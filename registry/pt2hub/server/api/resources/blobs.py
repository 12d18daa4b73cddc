"""Streamed upload and download of blobs."""

from collections.abc import Iterator
from functools import partial
from http import HTTPStatus

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel
from werkzeug.exceptions import ClientDisconnected
from werkzeug.wrappers import Response as WerkzeugResponse

from pt2hub.domain.digests import CHUNK, Digest
from pt2hub.errors import NotFound, StorageFull, TooLarge, UploadTruncated
from pt2hub.server.api.client_address import client_address
from pt2hub.server.api.context import caller, container, context, render
from pt2hub.server.api.ranges import Content, is_known, respond
from pt2hub.server.api.request_shapes import ARTIFACTS, BYTES, TOKEN, DigestPath
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.ports import RESERVE_BYTES, PresignedTransfers
from pt2hub.server.services.blobs.uploads import PRESIGNED_LIFETIME_S
from pt2hub.wire.artifacts import BlobCheck
from pt2hub.wire.uploads import Uploaded

routes = APIBlueprint("blobs", __name__, url_prefix="/api/v1", abp_tags=[ARTIFACTS])

_HOLDER = "api"


@routes.put(
    "/blobs/<digest>",
    responses={201: RootModel[Uploaded]},
    security=TOKEN,
    openapi_extensions={"requestBody": {"required": True, "content": BYTES}},
)
def upload(path: DigestPath) -> Response:
    """Upload a blob under its digest, which is verified on the way; intact ones stay unchanged, damaged ones are replaced."""
    key = StorageKey.blob(Digest(path.digest))
    storage, limit = container().storage, context().config.max_blob_bytes
    request.max_content_length = limit + 1  # what is larger is refused in words of our own
    new = storage.size(key) is None
    _admit(request.content_length or 0, limit, new=new)
    size = container().blobs.write(key, _read_body(new=new), holder=_HOLDER, limit=limit, by=caller())
    return render(Uploaded(key.digest, size), HTTPStatus.CREATED)


@routes.get(
    "/blobs/<digest>",
    responses={
        200: {"content": BYTES},
        206: {"content": BYTES},
        307: {"description": "`Location` is a presigned URL, valid for some minutes"},
    },
)
def download(path: DigestPath) -> WerkzeugResponse:
    """Download a blob or a range of it, directly or by redirect to the storage."""
    key, storage = StorageKey.blob(Digest(path.digest)), container().storage
    if isinstance(storage, PresignedTransfers) and request.method == "GET" and not is_known(key.digest):
        return _elsewhere(storage, key)
    row, size = container().damage.open(key)
    read = partial(container().damage.read, row, size)
    return respond(Content(key.digest, size, key.content_type, key.cache_control, read))


@routes.post("/blobs/<digest>/check", responses={200: RootModel[BlobCheck]})
def check(path: DigestPath) -> Response:
    """Report that a download had other bytes: the server reads the blob again, and serves it no more if it is damaged.

    Whoever may read it may report it. Large blobs are `queued` for the scrub, which reads each at most once a day. A few
    reports a minute are taken, fewer from one address.
    """
    return render(container().damage_reports.check(StorageKey.blob(Digest(path.digest)), client_address()))


@routes.get("/artifacts/<digest>/model.pt2", responses={200: {"content": BYTES}, 206: {"content": BYTES}})
def model(path: DigestPath) -> WerkzeugResponse:
    """Download the artifact as a single file that stock PyTorch loads, or a range of it.

    The file is assembled while it is sent; its digest, the ETag, was recorded by the build. For a range, the server must
    read everything before it.
    """
    service = container().single_file
    found = service.find(Digest(path.digest))
    key = StorageKey.blob(found.config.single_file.digest)
    read = partial(service.chunks, found)
    response = respond(
        Content(key.digest, found.config.single_file.size, key.content_type, key.cache_control, read)
    )
    container().pulls.record(found.config.version.model, found.config.version.number)
    response.headers["Content-Disposition"] = f'attachment; filename="{found.name}"'
    return response


def _elsewhere(storage: PresignedTransfers, key: StorageKey) -> Response:
    """Redirect to the storage with 307, which preserves the `Range` header."""
    damage = container().damage
    row = damage.find_readable(key)
    known = row if row and row.state == "stored" else None
    try:
        signed = storage.sign_read(known.key if known else key, seconds=PRESIGNED_LIFETIME_S)
    except NotFound as exc:
        if known:  # it should be there
            raise
        raise NotFound(f"Blob {key.digest} not found.", where=key.digest) from exc
    if known and signed.size != known.size:
        damage.refuse(known)
    # The presigned URL is a secret while it is valid.
    headers = {"Location": signed.url, "Cache-Control": "no-store"}
    return Response(status=HTTPStatus.TEMPORARY_REDIRECT, headers=headers)


def _admit(announced: int, limit: int, *, new: bool) -> None:
    """Reject an upload based on its headers, before reading it."""
    if announced > limit:
        raise TooLarge(
            f"The upload is too large ({announced} bytes, at most {limit}).",
            hint="Ask the server's operator to raise PT2HUB_MAX_BLOB_BYTES.",
            context={"limit": limit},
        )
    if new:
        _check_space(announced)


def _check_space(needed: int) -> None:
    free = container().storage.free()
    if free is not None and free < needed + RESERVE_BYTES:
        raise StorageFull(
            f"The upload needs {needed} more bytes, but the storage has only {max(0, free - RESERVE_BYTES)} available.",
            hint="Ask the server's operator to free space or to move the storage (PT2HUB_STORAGE).",
            context={"announced": request.content_length, "free": free, "reserve": RESERVE_BYTES},
        )


def _read_body(*, new: bool) -> Iterator[bytes]:
    """Yield the request's body in pieces.

    Args:
        new: Whether it takes up space, which is checked on the way: others may use it too, and chunked bodies have no
            announced length.

    Raises:
        UploadTruncated: The body ended too early.
        StorageFull: The body would use the reserved space.
    """
    received, announced = 0, request.content_length
    while True:
        try:
            chunk = request.stream.read(CHUNK)
        except (ClientDisconnected, OSError) as exc:  # gunicorn raises OSError for truncated chunked bodies
            raise _truncated_error(received, announced) from exc
        received += len(chunk)
        if not chunk and announced is not None and received < announced:
            raise _truncated_error(received, announced)
        if not chunk:
            return
        if new:
            _check_space(len(chunk))
        yield chunk


def _truncated_error(received: int, announced: int | None) -> UploadTruncated:
    expected = "the end is missing" if announced is None else f"{announced} were announced"
    return UploadTruncated(
        f"{received} bytes of the upload were received; {expected}.",
        hint="Upload it again. If this repeats, look for a proxy with a time or size limit.",
        context={"announced": announced, "received": received},
    )
