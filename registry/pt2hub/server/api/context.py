"""What a handler reaches for: the container, the settings, and how answers are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from flask import Response, current_app, g

from pt2hub.domain.codec import encode
from pt2hub.errors import Detail
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import Container

if TYPE_CHECKING:
    from flask import Flask
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_KEY = "pt2hub"


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


def actor() -> str:
    """Name of the token that the request came with; every request that changes something has one."""
    return cast("str", g.actor)


def wrong_fields(error: ValidationError) -> tuple[Detail, ...]:
    """What pydantic found wrong, place by place."""
    return tuple(
        Detail(".".join(map(str, item["loc"])), item["msg"], given=_given(item)) for item in error.errors()
    )


def _given(item: ErrorDetails) -> str | None:
    """What stood there; of a field that is missing, pydantic shows all the others."""
    return None if item["type"] == "missing" else str(item["input"])[:80]


def render(value: Any, status: int = 200) -> Response:  # noqa: ANN401  # any dataclass or JSON value
    """A value as a JSON response."""
    return Response(json.dumps(encode(value)), status=status, mimetype="application/json")
