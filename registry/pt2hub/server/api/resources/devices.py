"""Tokens for devices without a browser (RFC 8628, with JSON bodies and this API's errors)."""

from http import HTTPStatus

from flask import Response, g
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.errors import SignInUnavailable
from pt2hub.server.api.client_address import client_address
from pt2hub.server.api.context import body, container, context, render
from pt2hub.server.api.request_shapes import SERVER, json_body
from pt2hub.server.api.request_shapes_access import DevicePoll, DeviceStart
from pt2hub.server.services.access.devices import INTERVAL_S, LIFETIME
from pt2hub.wire.identities import DeviceAuthorization, MintedToken

routes = APIBlueprint("devices", __name__, url_prefix="/api/v1/device", abp_tags=[SERVER])

_MAX_BYTES = 1 << 12


@routes.post(
    "/code", responses={201: RootModel[DeviceAuthorization]}, openapi_extensions=json_body(DeviceStart)
)
def request() -> Response:
    """Begin a request for a token, which a person approves in a browser at the returned address.

    Without a provider to sign in with, there is no such request (404, `sign_in_unavailable`).
    """
    provider = context().config.provider
    if provider is None:
        raise SignInUnavailable(
            "This server has no provider to sign in with",
            where="provider",
            hint="Log in with a token: pt2hub login --token",
        )
    container().rate_limits.count_sign_in(client_address())
    given = body(
        DeviceStart, most=_MAX_BYTES, what="The request", hint='Send {"client": "pt2hub on laptop"}.'
    )
    codes = container().devices.request(given.client)
    page = f"{provider.public_url}/device"
    return _secret(
        DeviceAuthorization(
            codes.device_code,
            codes.user_code,
            page,
            f"{page}?user_code={codes.user_code}",
            int(LIFETIME.total_seconds()),
            INTERVAL_S,
        )
    )


@routes.post("/token", responses={201: RootModel[MintedToken]}, openapi_extensions=json_body(DevicePoll))
def token() -> Response:
    """Return the token of an approved request, once.

    Until then the codes are those of RFC 8628: `authorization_pending`, `slow_down` (wait five seconds longer from now on),
    `access_denied` and `expired_token`.
    """
    given = body(DevicePoll, most=_MAX_BYTES, what="The poll", hint='Send {"device_code": "..."}.')
    return _secret(container().devices.redeem(given.device_code, request=g.request))


def _secret(value: DeviceAuthorization | MintedToken) -> Response:
    response = render(value, HTTPStatus.CREATED)
    response.headers["Cache-Control"] = "no-store"
    return response
