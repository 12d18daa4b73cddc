"""Aliases of models."""

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import (
    ALIASES,
    TOKEN,
    AliasChange,
    AliasPath,
    AliasRemoval,
    ModelPath,
    MovesQuery,
    PreviewQuery,
    json_body,
)
from pt2hub.server.api.waits import Look, answer_at_change
from pt2hub.server.db.notifications import alias_topic
from pt2hub.wire.performance import PromotionPreview
from pt2hub.wire.responses import AliasList, AliasMoves, AliasView

routes = APIBlueprint(
    "aliases", __name__, url_prefix="/api/v1/models/<team>/<name>/aliases", abp_tags=[ALIASES]
)

_MAX_CHANGE_BYTES = 1 << 14
_HINT = 'Send {"number": 3, "expected": 2, "reason": "..."}; expected is null for a new alias.'


@routes.get("", responses={200: RootModel[AliasList]})
def aliases(path: ModelPath) -> Response:
    """Return the aliases of a model by name, without removed ones."""
    return render(container().aliases.aliases(f"{path.team}/{path.name}"))


@routes.get("/<alias>", responses={200: RootModel[AliasView]})
def alias(path: AliasPath) -> Response:
    """Return an alias with its history, removed or not."""
    return render(container().aliases.alias(f"{path.team}/{path.name}", path.alias))


@routes.get("/<alias>/moves", responses={200: RootModel[AliasMoves]})
def moves(path: AliasPath, query: MovesQuery) -> Response:
    """Return the moves of an alias after a known one; if there is none yet, as soon as there is, or after `wait` seconds.

    The answer's `last` is the next request's `after`, so that no move is missed in between. The alias need not exist yet.
    """
    model, after = f"{path.team}/{path.name}", query.after

    def look() -> Look:
        found = container().aliases.moves(model, path.alias, after=after)
        is_news = after is None or found.last != after
        return Look(render(found), is_news, [alias_topic(model, path.alias)])

    return answer_at_change(look, query.wait)


@routes.get("/<alias>/preview", responses={200: RootModel[PromotionPreview]}, security=TOKEN)
def preview(path: AliasPath, query: PreviewQuery) -> Response:
    """Return which promotion checks a move of an alias would pass or fail for this token; nothing is moved."""
    return render(
        container().aliases.preview(
            f"{path.team}/{path.name}", path.alias, query.number, by=caller().principal
        )
    )


@routes.put(
    "/<alias>",
    responses={200: RootModel[AliasView]},
    security=TOKEN,
    openapi_extensions=json_body(AliasChange),
)
def move(path: AliasPath) -> Response:
    """Move an alias to a version if it is on the expected one; repeating the same move changes nothing.

    The move fails if a promotion check of the model's policy fails (`promotion_check_failed`), if the policy protects the
    alias from this token (`forbidden`), or if the version is yanked (`version_yanked`). An admin token may force it past the
    policy.
    """
    change = body(AliasChange, most=_MAX_CHANGE_BYTES, what="The alias move", hint=_HINT)
    model, aliases = f"{path.team}/{path.name}", container().aliases
    where, why = change.expected, change.reason
    if change.force:
        view = aliases.force(model, path.alias, change.number, expected=where, reason=why, by=caller())
    else:
        view = aliases.move(model, path.alias, change.number, expected=where, reason=why, by=caller())
    return render(view)


@routes.delete("/<alias>", responses={200: RootModel[AliasView]}, security=TOKEN)
def remove(path: AliasPath, query: AliasRemoval) -> Response:
    """Remove an alias if it is on the expected version; its history is kept."""
    view = container().aliases.remove(
        f"{path.team}/{path.name}", path.alias, expected=query.expected, reason=query.reason, by=caller()
    )
    return render(view)
