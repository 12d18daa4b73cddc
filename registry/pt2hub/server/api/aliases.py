"""Aliases of models."""

from flask import Response, request
from flask_openapi3.blueprint import APIBlueprint
from pydantic import ValidationError

from pt2hub.errors import InvalidInput
from pt2hub.server.api.context import actor, container, render, wrong_fields
from pt2hub.server.api.shapes import (
    ALIASES,
    TOKEN,
    Alias,
    AliasChange,
    Aliases,
    AliasPath,
    AliasRemoval,
    ModelPath,
)
from pt2hub.wire.documents import JSON_TYPE, parse_document

routes = APIBlueprint(
    "aliases", __name__, url_prefix="/api/v1/models/<team>/<name>/aliases", abp_tags=[ALIASES]
)

_MAX_CHANGE_BYTES = 1 << 14
_CHANGE = {"required": True, "content": {JSON_TYPE: {"schema": AliasChange.model_json_schema()}}}


@routes.get("", responses={200: Aliases})
def aliases(path: ModelPath) -> Response:
    """The aliases of a model, by name; removed ones are left out."""
    return render(container().aliases.aliases(f"{path.team}/{path.name}"))


@routes.get("/<alias>", responses={200: Alias})
def alias(path: AliasPath) -> Response:
    """An alias with its history, removed or not."""
    return render(container().aliases.alias(f"{path.team}/{path.name}", path.alias))


@routes.put("/<alias>", responses={200: Alias}, security=TOKEN, openapi_extensions={"requestBody": _CHANGE})
def move(path: AliasPath) -> Response:
    """Puts an alias on a version if it is where you believe; the same move again changes nothing."""
    change = _change()
    view = container().aliases.move(
        f"{path.team}/{path.name}",
        path.alias,
        change.number,
        expected=change.expected,
        reason=change.reason,
        by=actor(),
    )
    return render(view)


@routes.delete("/<alias>", responses={200: Alias}, security=TOKEN)
def remove(path: AliasPath, query: AliasRemoval) -> Response:
    """Takes an alias away if it is where you believe; its history stays."""
    view = container().aliases.remove(
        f"{path.team}/{path.name}", path.alias, expected=query.expected, reason=query.reason, by=actor()
    )
    return render(view)


def _change() -> AliasChange:
    request.max_content_length = _MAX_CHANGE_BYTES
    document = parse_document(request.get_data(cache=False), content_type=JSON_TYPE)
    try:
        return AliasChange.model_validate(document)
    except ValidationError as exc:
        raise InvalidInput(
            "The move of an alias has wrong fields.",
            where="document",
            hint='Send {"number": 3, "expected": 2, "reason": "..."}; expected is null for a new alias.',
            details=wrong_fields(exc),
        ) from exc
