"""Webhooks: creation, lists, rotation of secrets, and deliveries."""

from datetime import timedelta
from http import HTTPStatus

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import SERVER, TOKEN, json_body
from pt2hub.server.api.request_shapes_webhooks import (
    DeliveryPath,
    DeliveryQuery,
    SecretRotation,
    WebhookChange,
    WebhookCreation,
    WebhookPath,
)
from pt2hub.wire.webhooks import DeliveryPage, DeliveryView, WebhookList, WebhookSecret, WebhookView

routes = APIBlueprint("webhooks", __name__, url_prefix="/api/v1/webhooks", abp_tags=[SERVER])

_MAX_BYTES = 1 << 14
_CREATION = (
    'Send {"address": "https://ci.example.org/hook", "models": "vision/*", "events": ["alias.moved"]}.'
)
_CHANGE = 'Send {"enabled": true}.'
_ROTATION = 'Send {"overlap_seconds": 86400}: how long the old secret signs too.'


@routes.get("", responses={200: RootModel[WebhookList]}, security=TOKEN)
def webhooks() -> Response:
    """Return the webhooks for models that the sender's admin token covers."""
    return render(WebhookList(container().webhooks.webhooks(caller())))


@routes.post(
    "",
    responses={201: RootModel[WebhookSecret]},
    security=TOKEN,
    openapi_extensions=json_body(WebhookCreation),
)
def create() -> Response:
    """Create a webhook, for models that the admin token covers; its secret is returned this once."""
    wanted = body(WebhookCreation, most=_MAX_BYTES, what="The webhook", hint=_CREATION)
    made = container().webhooks.create(
        wanted.address, pattern=wanted.models, events=wanted.events, by=caller()
    )
    return _secret(made)


@routes.patch(
    "/<id>",
    responses={200: RootModel[WebhookView]},
    security=TOKEN,
    openapi_extensions=json_body(WebhookChange),
)
def change(path: WebhookPath) -> Response:
    """Enable or disable a webhook."""
    wanted = body(WebhookChange, most=_MAX_BYTES, what="The change", hint=_CHANGE)
    return render(container().webhooks.set_enabled(path.id, enabled=wanted.enabled, by=caller()))


@routes.delete("/<id>", responses={200: RootModel[WebhookView]}, security=TOKEN)
def delete(path: WebhookPath) -> Response:
    """Delete a webhook and its deliveries."""
    return render(container().webhooks.delete(path.id, by=caller()))


@routes.post(
    "/<id>/rotate",
    responses={201: RootModel[WebhookSecret]},
    security=TOKEN,
    openapi_extensions=json_body(SecretRotation),
)
def rotate(path: WebhookPath) -> Response:
    """Replace a webhook's secret; the old one signs too for a while."""
    wanted = body(SecretRotation, most=_MAX_BYTES, what="The rotation", hint=_ROTATION)
    overlap = timedelta(seconds=wanted.overlap_seconds)
    return _secret(container().webhooks.rotate(path.id, overlap=overlap, by=caller()))


@routes.post("/<id>/test", responses={202: RootModel[DeliveryView]}, security=TOKEN)
def test(path: WebhookPath) -> Response:
    """Send an event of the type `ping`; the deliveries show how it went."""
    return render(container().webhooks.test(path.id, by=caller()), HTTPStatus.ACCEPTED)


@routes.get("/<id>/deliveries", responses={200: RootModel[DeliveryPage]}, security=TOKEN)
def deliveries(path: WebhookPath, query: DeliveryQuery) -> Response:
    """Return the deliveries of a webhook with their attempts, newest first, page by page."""
    page = container().webhooks.deliveries(path.id, after=query.after, limit=query.limit, by=caller())
    return render(page)


@routes.post(
    "/<id>/deliveries/<delivery>/redeliver", responses={202: RootModel[DeliveryView]}, security=TOKEN
)
def redeliver(path: DeliveryPath) -> Response:
    """Send an event again, with the same id."""
    queued = container().webhooks.redeliver(path.id, path.delivery, by=caller())
    return render(queued, HTTPStatus.ACCEPTED)


def _secret(made: WebhookSecret) -> Response:
    response = render(made, HTTPStatus.CREATED)
    response.headers["Cache-Control"] = "no-store"
    return response
