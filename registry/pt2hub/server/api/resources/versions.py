"""Versions and builds."""

from http import HTTPStatus

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.domain.builds import BuildFilter
from pt2hub.server.api import permissions
from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import (
    MODELS,
    TOKEN,
    BuildPath,
    BuildsQuery,
    ModelPath,
    RetryQuery,
    SubmitQuery,
    TargetAddition,
    VersionPath,
    VersionsQuery,
    WaitQuery,
    YankEnd,
    YankOrder,
    json_body,
)
from pt2hub.server.api.waits import answer_if_changed
from pt2hub.wire.documents import JSON_TYPE, MAX_DOCUMENT_BYTES, YAML_TYPE, parse_document
from pt2hub.wire.previews import PublishPreview
from pt2hub.wire.responses import BuildPage, BuildView, VersionPage, VersionView

routes = APIBlueprint("versions", __name__, url_prefix="/api/v1", abp_tags=[MODELS])

_MAX_TARGET_BYTES = 1 << 12
_MAX_YANK_BYTES = 1 << 14
_YANK_HINT = 'Send {"reason": "..."}.'
_TARGET_HINT = 'Send {"target": "torch2.13-cpu-x86_64_v3"}.'
_SPEC = {"schema": {"type": "object", "description": "See /api/v1/spec.schema.json."}}


@routes.post(
    "/versions",
    responses={200: RootModel[VersionView], 201: RootModel[VersionView]},
    security=TOKEN,
    openapi_extensions={"requestBody": {"required": True, "content": {JSON_TYPE: _SPEC, YAML_TYPE: _SPEC}}},
)
def submit(query: SubmitQuery) -> Response:
    """Publish a model; the same content returns the existing version and adds missing targets."""
    request.max_content_length = MAX_DOCUMENT_BYTES
    document = parse_document(request.get_data(cache=False), content_type=request.mimetype)
    permissions.require(document.get("model"))
    version = container().publish.submit(document, by=caller(), priority=query.priority)
    return render(version, HTTPStatus.CREATED if version.created else HTTPStatus.OK)


@routes.post(
    "/versions/preview",
    responses={200: RootModel[PublishPreview]},
    security=TOKEN,
    openapi_extensions={"requestBody": {"required": True, "content": {JSON_TYPE: _SPEC, YAML_TYPE: _SPEC}}},
)
def preview() -> Response:
    """Return what publishing a spec would do, with the same errors; nothing changes."""
    request.max_content_length = MAX_DOCUMENT_BYTES
    document = parse_document(request.get_data(cache=False), content_type=request.mimetype)
    permissions.require(document.get("model"))
    return render(container().publish.check(document))


@routes.get("/models/<team>/<name>/versions", responses={200: RootModel[VersionPage]})
def versions(path: ModelPath, query: VersionsQuery) -> Response:
    """Return the versions of a model, newest first, page by page."""
    page = container().catalog.versions(f"{path.team}/{path.name}", before=query.before, limit=query.limit)
    return render(page)


@routes.get("/models/<team>/<name>/versions/<number>", responses={200: RootModel[VersionView]})
def version(path: VersionPath, query: WaitQuery) -> Response:
    """Return a version and its builds; with `If-None-Match` and `wait`, as soon as that differs, or 304 after so many seconds."""
    model = f"{path.team}/{path.name}"
    return answer_if_changed(
        lambda: container().publish.version(model, path.number), _topics, seconds=query.wait
    )


@routes.post(
    "/models/<team>/<name>/versions/<number>/targets",
    responses={200: RootModel[VersionView]},
    security=TOKEN,
    openapi_extensions=json_body(TargetAddition),
)
def add_target(path: VersionPath) -> Response:
    """Add a target to a version; where the version has it already, nothing changes.

    A build that failed is not queued again, which `POST /builds/<id>/retry` does.
    """
    wanted = body(TargetAddition, most=_MAX_TARGET_BYTES, what="The request", hint=_TARGET_HINT).target
    return render(
        container().publish.add_target(f"{path.team}/{path.name}", path.number, wanted, by=caller())
    )


@routes.put(
    "/models/<team>/<name>/versions/<number>/yank",
    responses={200: RootModel[VersionView]},
    security=TOKEN,
    openapi_extensions=json_body(YankOrder),
)
def yank(path: VersionPath) -> Response:
    """Hide a version from names without a version and from alias moves; its number and digests still resolve.

    A version that aliases point to cannot be yanked (`version_in_use`). Repeating the same request changes nothing.
    """
    order = body(YankOrder, most=_MAX_YANK_BYTES, what="The yank", hint=_YANK_HINT)
    model = f"{path.team}/{path.name}"
    container().yanks.yank(model, path.number, reason=order.reason, by=caller())
    return render(container().publish.version(model, path.number))


@routes.delete(
    "/models/<team>/<name>/versions/<number>/yank",
    responses={200: RootModel[VersionView]},
    security=TOKEN,
)
def unyank(path: VersionPath, query: YankEnd) -> Response:
    """End the yank of a version; its history is kept."""
    model = f"{path.team}/{path.name}"
    container().yanks.unyank(model, path.number, reason=query.reason, by=caller())
    return render(container().publish.version(model, path.number))


@routes.get("/builds", responses={200: RootModel[BuildPage]})
def builds(query: BuildsQuery) -> Response:
    """Return builds without their steps, newest first, page by page."""
    wanted = BuildFilter(query.model, query.number, query.state, query.target, query.kind)
    return render(container().catalog.builds(wanted, after=query.after, limit=query.limit))


@routes.get("/builds/<id>", responses={200: RootModel[BuildView]})
def build(path: BuildPath, query: WaitQuery) -> Response:
    """Return a build, its attempts and the steps of the latest one; `If-None-Match` and `wait` as for a version."""
    return answer_if_changed(
        lambda: container().builds.view(path.id), lambda found: [found.id], seconds=query.wait
    )


@routes.post("/builds/<id>/cancel", responses={200: RootModel[BuildView]}, security=TOKEN)
def cancel(path: BuildPath) -> Response:
    """Cancel a queued or running build immediately; its worker stops within a second."""
    return render(container().builds.cancel(path.id, by=caller()))


@routes.post("/builds/<id>/retry", responses={200: RootModel[BuildView]}, security=TOKEN)
def retry(path: BuildPath, query: RetryQuery) -> Response:
    """Queue a failed or cancelled build again."""
    return render(container().builds.retry(path.id, by=caller(), priority=query.priority))


def _topics(version: VersionView) -> list[str]:
    """Return the ids of a version's builds and their measuring jobs."""
    jobs = [build.measurement.job for build in version.builds if build.measurement]
    return [*(build.id for build in version.builds), *(job for job in jobs if job)]
