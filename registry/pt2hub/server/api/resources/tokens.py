"""Tokens: creation, lists, rotation and revocation."""

from datetime import timedelta
from http import HTTPStatus

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.domain.tokens import TokenInfo
from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import SERVER, TOKEN, TokenCreation, TokenPath, TokenRotation, json_body
from pt2hub.wire.tokens import CreatedToken, TokenList

routes = APIBlueprint("tokens", __name__, url_prefix="/api/v1/tokens", abp_tags=[SERVER])

_MAX_BYTES = 1 << 14
_CREATION = 'Send {"name": "ci", "scopes": ["publish"], "models": ["vision/*"], "expires_seconds": 86400}.'
_ROTATION = 'Send {"overlap_seconds": 86400}: how long the old token still works.'


@routes.get("", responses={200: RootModel[TokenList]}, security=TOKEN)
def tokens() -> Response:
    """Return the sender's token, and for an admin all tokens for models that its own covers."""
    return render(TokenList(container().token_management.tokens(caller())))


@routes.post(
    "",
    responses={201: RootModel[CreatedToken]},
    security=TOKEN,
    openapi_extensions=json_body(TokenCreation),
)
def create() -> Response:
    """Create a token, for models that the admin's own token covers; it is returned this once."""
    wanted = body(TokenCreation, most=_MAX_BYTES, what="The token", hint=_CREATION)
    lasting = None if wanted.expires_seconds is None else timedelta(seconds=wanted.expires_seconds)
    made = container().token_management.create(
        wanted.name, scopes=wanted.scopes, patterns=wanted.models, lasting=lasting, by=caller()
    )
    return _secret(made)


@routes.post(
    "/<id>/rotate",
    responses={201: RootModel[CreatedToken]},
    security=TOKEN,
    openapi_extensions=json_body(TokenRotation),
)
def rotate(path: TokenPath) -> Response:
    """Replace a token of a service by one like it: the sender's own, or one that its admin token covers.

    The old one ends after a while. Tokens of people are replaced in a browser; those of trusted publishing are not.
    """
    wanted = body(TokenRotation, most=_MAX_BYTES, what="The rotation", hint=_ROTATION)
    overlap = timedelta(seconds=wanted.overlap_seconds)
    return _secret(container().token_management.rotate(path.id, overlap=overlap, by=caller()))


@routes.delete("/<id>", responses={200: RootModel[TokenInfo]}, security=TOKEN)
def revoke(path: TokenPath) -> Response:
    """Revoke a token at once: the sender's own, or one that its admin token covers."""
    return render(container().token_management.revoke(path.id, by=caller()))


def _secret(made: CreatedToken) -> Response:
    response = render(made, HTTPStatus.CREATED)
    response.headers["Cache-Control"] = "no-store"
    return response
