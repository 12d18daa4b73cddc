"""Exchange of OpenID Connect providers' tokens."""

from http import HTTPStatus

from flask import Response, g
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.client_address import client_address
from pt2hub.server.api.context import body, container, render
from pt2hub.server.api.request_shapes import SERVER, IdTokenExchange, json_body
from pt2hub.wire.identities import MintedToken

routes = APIBlueprint("oidc", __name__, url_prefix="/api/v1/oidc", abp_tags=[SERVER])

_MAX_BYTES = 1 << 15
_HINT = 'Send {"id_token": "eyJ..."}.'


@routes.post("/token", responses={201: RootModel[MintedToken]}, openapi_extensions=json_body(IdTokenExchange))
def exchange() -> Response:
    """Exchange an ID token of a trusted provider for a short-lived token of this server (trusted publishing).

    The ID token itself is the proof, so the request needs no other one.
    """
    container().rate_limits.count_sign_in(client_address())
    given = body(IdTokenExchange, most=_MAX_BYTES, what="The exchange", hint=_HINT)
    response = render(container().trust.exchange(given.id_token, request=g.request), HTTPStatus.CREATED)
    response.headers["Cache-Control"] = "no-store"
    return response
