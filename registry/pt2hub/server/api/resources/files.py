"""Attached files of versions."""

from functools import partial
from urllib.parse import quote

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel
from werkzeug.http import dump_options_header
from werkzeug.wrappers import Response as WerkzeugResponse

from pt2hub.domain.digests import Digest
from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.ranges import Content, respond
from pt2hub.server.api.request_shapes import BYTES, MODELS, TOKEN, VersionPath, json_body
from pt2hub.server.api.request_shapes_files import FileOrder, FilePath
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.publishing.version_files import NewFile
from pt2hub.wire.files import FileList

routes = APIBlueprint("files", __name__, url_prefix="/api/v1", abp_tags=[MODELS])

_MAX_ORDER_BYTES = 1 << 12
_HINT = 'Send {"digest": "sha256:..."}.'
_FILES = "/models/<team>/<name>/versions/<number>/files"


@routes.get(_FILES, responses={200: RootModel[FileList]})
def files(path: VersionPath) -> Response:
    """Return the attached files of a version."""
    return render(container().version_files.files(f"{path.team}/{path.name}", path.number))


@routes.get(f"{_FILES}/<file>", responses={200: {"content": BYTES}, 206: {"content": BYTES}})
def file(path: FilePath) -> WerkzeugResponse:
    """Download an attached file, or a range of it; browsers save it and never show it, whatever its media type."""
    services = container()
    found = services.version_files.file(f"{path.team}/{path.name}", path.number, path.file)
    key = StorageKey.blob(found.digest)
    row, size = services.damage.open(key)
    read = partial(services.damage.read, row, size)
    response = respond(Content(found.digest, size, key.content_type, "private, no-cache", read))
    response.headers["Content-Disposition"] = disposition(found.name)
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


@routes.put(
    f"{_FILES}/<file>",
    responses={200: RootModel[FileList]},
    security=TOKEN,
    openapi_extensions=json_body(FileOrder),
)
def put(path: FilePath) -> Response:
    """Add a documentation file to a version, or replace it; its content was uploaded before.

    What is pinned keeps the file that it had. Files that programs need are given at the publication and never change
    (`file_fixed`).
    """
    order = body(FileOrder, most=_MAX_ORDER_BYTES, what="The file", hint=_HINT)
    new = NewFile(path.file, Digest(order.digest), order.kind, order.media_type)
    return render(container().version_files.put(f"{path.team}/{path.name}", path.number, new, by=caller()))


@routes.delete(f"{_FILES}/<file>", responses={200: RootModel[FileList]}, security=TOKEN)
def remove(path: FilePath) -> Response:
    """Remove a documentation file from a version; what is pinned still has it."""
    model = f"{path.team}/{path.name}"
    return render(container().version_files.remove(model, path.number, path.file, by=caller()))


def disposition(name: str) -> str:
    """Return the header that has a browser save a file under its name (RFC 6266)."""
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    return dump_options_header(
        "attachment", {"filename": plain, "filename*": f"UTF-8''{quote(name, safe='')}"}
    )
