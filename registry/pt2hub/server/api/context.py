"""What a handler reaches for: the container, the settings, and how answers are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flask import Response, current_app, g, request
from pydantic import BaseModel, ValidationError

from pt2hub.domain.codec import encode
from pt2hub.errors import Detail, InvalidInput
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import Container
from pt2hub.wire.documents import JSON_TYPE, parse_document

if TYPE_CHECKING:
    from flask import Flask
    from pydantic_core import ErrorDetails

    from pt2hub.domain.tokens import Actor

PAGES = "pages"
"""Name of the blueprint of the web pages, which check by themselves who may change something."""
T = TypeVar("T", bound=BaseModel)
_KEY = "pt2hub"
_MOST_DETAILS = 20
"""Of a list with ten thousand wrong items the first ones say what is wrong with all."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an application serves.

    Attributes:
        container: The services.
        config: The settings.
    """

    container: Container
    config: ServerConfig


def attach(app: Flask, context: Context) -> None:
    """Gives an application what its handlers reach for."""
    app.extensions[_KEY] = context


def context() -> Context:
    """The current application's."""
    return cast("Context", current_app.extensions[_KEY])


def container() -> Container:
    """The current application's services."""
    return context().container


def caller() -> Actor:
    """Who sent the request; every request that changes something comes with a token."""
    return cast("Actor", g.actor)


def actor() -> str:
    """Name of the token that the request came with; see `caller`."""
    return caller().name


def wrong_fields(error: ValidationError) -> tuple[Detail, ...]:
    """What pydantic found wrong, place by place; of very many places the first ones."""
    return tuple(
        Detail(".".join(map(str, item["loc"])), item["msg"], given=_given(item))
        for item in error.errors()[:_MOST_DETAILS]
    )


def body(shape: type[T], *, most: int, what: str, hint: str) -> T:
    """The current request's JSON body, checked.

    Args:
        shape: What it must be.
        most: Bytes that it may have.
        what: What it is, as the subject of a sentence.
        hint: How it is written.

    Raises:
        InvalidInput: It is no JSON, or has wrong fields.
        RequestEntityTooLarge: It is longer than it may be.
    """
    request.max_content_length = most
    document = parse_document(request.get_data(cache=False), content_type=JSON_TYPE, hint=hint)
    try:
        return shape.model_validate(document)
    except ValidationError as exc:
        raise InvalidInput(
            f"{what} has wrong fields.", where="document", hint=hint, details=wrong_fields(exc)
        ) from exc


def _given(item: ErrorDetails) -> str | None:
    """What stood there; of a field that is missing, pydantic shows all the others."""
    return None if item["type"] == "missing" else str(item["input"])[:80]


def render(value: Any, status: int = 200) -> Response:  # noqa: ANN401  # any dataclass or JSON value
    """A value as a JSON response."""
    return Response(json.dumps(encode(value)), status=status, mimetype="application/json")
