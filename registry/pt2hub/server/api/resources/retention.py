"""Deletion of versions, models, builds and blobs, and retention policies."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.domain.digests import Digest
from pt2hub.server.api import permissions
from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import (
    MODELS,
    TOKEN,
    BuildPath,
    DigestPath,
    ModelPath,
    VersionPath,
    json_body,
)
from pt2hub.server.api.request_shapes_retention import (
    BlobDeletionQuery,
    DeletionQuery,
    RetentionOrder,
    RetentionQuery,
    VersionDeletionQuery,
)
from pt2hub.server.services.retention.policies import pattern_of
from pt2hub.wire.retention import DeletionView, RetentionPreview, RetentionView

routes = APIBlueprint("retention", __name__, url_prefix="/api/v1", abp_tags=[MODELS])

_MAX_ORDER_BYTES = 1 << 12
_HINT = 'Send {"scope": "vision/vit", "last": 10, "pulled_within_days": 90}; {"scope": "vision/vit"} keeps everything.'


@routes.delete(
    "/models/<team>/<name>/versions/<number>", responses={200: RootModel[DeletionView]}, security=TOKEN
)
def delete_version(path: VersionPath, query: VersionDeletionQuery) -> Response:
    """Delete a version that nothing needs, or by force one whose bytes must not be served.

    Its number is not used again and answers 410 (`deleted`). What aliases, comparisons of pinned versions or unfinished
    builds need is refused (`still_needed`). A forced deletion also removes aliases on it, removes its objects at once and
    refuses their digests from then on.
    """
    model = f"{path.team}/{path.name}"
    if not query.force:
        view = container().deletion.version(
            model, path.number, by=caller(), reason=query.reason, dry_run=query.dry_run
        )
    else:
        deletion, also = container().forced_deletion, query.also
        if query.also_sharing:
            also = deletion.find_sharing(model, path.number, also)
        for reference in also:
            permissions.require(reference.partition("@")[0])
        view = deletion.delete(
            model,
            path.number,
            by=caller(),
            reason=query.reason,
            also=also,
            keep_shared=query.keep_shared,
            dry_run=query.dry_run,
        )
    return render(view)


@routes.delete("/models/<team>/<name>", responses={200: RootModel[DeletionView]}, security=TOKEN)
def delete_model(path: ModelPath, query: DeletionQuery) -> Response:
    """Delete a model with all its versions; nothing goes if anything is needed."""
    return render(
        container().deletion.model(
            f"{path.team}/{path.name}", by=caller(), reason=query.reason, dry_run=query.dry_run
        )
    )


@routes.delete("/builds/<id>", responses={200: RootModel[DeletionView]}, security=TOKEN)
def delete_build(path: BuildPath, query: DeletionQuery) -> Response:
    """Delete a build that has ended, with its artifact, logs and measurements; its version stays."""
    view = container().deletion.build(path.id, by=caller(), reason=query.reason, dry_run=query.dry_run)
    return render(view)


@routes.delete("/blobs/<digest>", responses={200: RootModel[DeletionView]}, security=TOKEN)
def delete_blob(path: DigestPath, query: BlobDeletionQuery) -> Response:
    """Delete a blob to which nothing refers, at the next collection."""
    return render(container().deletion.blob(Digest(path.digest), by=caller(), dry_run=query.dry_run))


@routes.get("/retention", responses={200: RootModel[RetentionView]}, security=TOKEN)
def show_retention(query: RetentionQuery) -> Response:
    """Return the retention policy of a model or a team."""
    return render(container().retention.show(query.scope, by=caller()))


@routes.put(
    "/retention",
    responses={200: RootModel[RetentionView]},
    security=TOKEN,
    openapi_extensions=json_body(RetentionOrder),
)
def set_retention() -> Response:
    """Set the retention policy of a model or a team; it deletes nothing before its next hourly run."""
    order = body(RetentionOrder, most=_MAX_ORDER_BYTES, what="The retention policy", hint=_HINT)
    permissions.require(pattern_of(order.scope))
    return render(
        container().retention.put(
            order.scope, last=order.last, pulled_within_days=order.pulled_within_days, by=caller()
        )
    )


@routes.delete("/retention", responses={200: RootModel[RetentionView]}, security=TOKEN)
def remove_retention(query: RetentionQuery) -> Response:
    """Remove the retention policy of a model or a team; return the one that holds from now on."""
    return render(container().retention.remove(query.scope, by=caller()))


@routes.get("/retention/preview", responses={200: RootModel[RetentionPreview]}, security=TOKEN)
def preview_retention(query: RetentionQuery) -> Response:
    """Return what the retention policies of a model or a team would delete now, and what they keep although it is old."""
    return render(container().retention.preview(query.scope, by=caller()))
