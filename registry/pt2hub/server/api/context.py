"""Request context of handlers: services, settings, actor, body parsing and rendering."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flask import Response, current_app, g, request
from pydantic import BaseModel, ValidationError

from pt2hub.domain.codec import encode
from pt2hub.errors import Detail, InvalidInput
from pt2hub.rendering.quantities import format_count
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import Container
from pt2hub.server.services.validation_messages import format_limits, to_message
from pt2hub.wire.documents import JSON_TYPE, parse_document

if TYPE_CHECKING:
    from flask import Flask
    from pydantic_core import ErrorDetails

    from pt2hub.domain.tokens import Actor

PAGES = "pages"
"""Name of the blueprint of the web pages, which authorize requests themselves."""
T = TypeVar("T", bound=BaseModel)
_KEY = "pt2hub"
_MAX_DETAILS = 20
"""Maximum number of errors reported for a document; the first ones suffice."""


@dataclass(frozen=True, slots=True)
class Context:
    """Services and settings of an application.

    Attributes:
        container: The services.
        config: The settings.
    """

    container: Container
    config: ServerConfig


def attach(app: Flask, context: Context) -> None:
    """Attach a context to an application."""
    app.extensions[_KEY] = context


def context() -> Context:
    """Return the current application's context."""
    return cast("Context", current_app.extensions[_KEY])


def container() -> Container:
    """Return the current application's services."""
    return context().container


def caller() -> Actor:
    """Return the actor of the current request; requests that change something require a token."""
    return cast("Actor", g.actor)


def wrong_fields(error: ValidationError) -> tuple[Detail, ...]:
    """Convert pydantic errors to details, at most `_MAX_DETAILS`."""
    return tuple(
        Detail(".".join(map(str, item["loc"])), to_message(item), _given(item), format_limits(item))
        for item in error.errors()[:_MAX_DETAILS]
    )


def body(shape: type[T], *, most: int, what: str, hint: str) -> T:
    """Parse and validate the JSON body of the current request.

    Args:
        shape: Model of the body.
        most: Maximum size in bytes.
        what: Name of the body, for errors.
        hint: An example of a valid body.

    Raises:
        InvalidInput: The body is not JSON or has invalid fields.
        RequestEntityTooLarge: The body is too large.
    """
    request.max_content_length = most
    document = parse_document(request.get_data(cache=False), content_type=JSON_TYPE, hint=hint)
    try:
        return shape.model_validate(document)
    except ValidationError as exc:
        raise InvalidInput(
            f"{what} has invalid fields.", where="document", hint=hint, details=wrong_fields(exc)
        ) from exc


def _given(item: ErrorDetails) -> str | None:
    """Return the given value; None for missing fields, for which pydantic shows all the others."""
    if item["type"] == "missing":
        return None
    value = item["input"]
    if isinstance(value, dict):
        return format_count(len(value), "field")
    return format_count(len(value), "item") if isinstance(value, list) else str(value)[:80]


def render(value: Any, status: int = 200) -> Response:
    """Return a value as a JSON response."""
    return Response(json.dumps(encode(value)), status=status, mimetype="application/json")
