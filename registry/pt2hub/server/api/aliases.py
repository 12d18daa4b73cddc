"""Aliases of models."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint

from pt2hub.server.api.context import actor, body, caller, container, render
from pt2hub.server.api.shapes import (
    ALIASES,
    TOKEN,
    Alias,
    AliasChange,
    Aliases,
    AliasPath,
    AliasRemoval,
    ModelPath,
    json_body,
)

routes = APIBlueprint(
    "aliases", __name__, url_prefix="/api/v1/models/<team>/<name>/aliases", abp_tags=[ALIASES]
)

_MAX_CHANGE_BYTES = 1 << 14
_HINT = 'Send {"number": 3, "expected": 2, "reason": "..."}; expected is null for a new alias.'


@routes.get("", responses={200: Aliases})
def aliases(path: ModelPath) -> Response:
    """The aliases of a model, by name; removed ones are left out."""
    return render(container().aliases.aliases(f"{path.team}/{path.name}"))


@routes.get("/<alias>", responses={200: Alias})
def alias(path: AliasPath) -> Response:
    """An alias with its history, removed or not."""
    return render(container().aliases.alias(f"{path.team}/{path.name}", path.alias))


@routes.put("/<alias>", responses={200: Alias}, security=TOKEN, openapi_extensions=json_body(AliasChange))
def move(path: AliasPath) -> Response:
    """Puts an alias on a version if it is where you believe; the same move again changes nothing.

    The model's policy may refuse it (`gate_refused`); an admin's token may force it.
    """
    change = body(AliasChange, most=_MAX_CHANGE_BYTES, what="The move of an alias", hint=_HINT)
    model, aliases = f"{path.team}/{path.name}", container().aliases
    where, why = change.expected, change.reason
    if change.force:
        view = aliases.force(model, path.alias, change.number, expected=where, reason=why, by=caller())
    else:
        view = aliases.move(model, path.alias, change.number, expected=where, reason=why, by=actor())
    return render(view)


@routes.delete("/<alias>", responses={200: Alias}, security=TOKEN)
def remove(path: AliasPath, query: AliasRemoval) -> Response:
    """Takes an alias away if it is where you believe; its history stays."""
    view = container().aliases.remove(
        f"{path.team}/{path.name}", path.alias, expected=query.expected, reason=query.reason, by=actor()
    )
    return render(view)
