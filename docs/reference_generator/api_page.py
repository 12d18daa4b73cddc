"""docs/reference/api.md."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from structlog.testing import capture_logs

from pt2hub.server.api.app import create_app
from pt2hub.server.config import ServerConfig
from reference_generator import markdown as md
from reference_generator.schemas import Schema, default_of, fields, limits_of, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.container import Container

_INTRO = """
The REST API of a server, under `/api/v1` of its address. A running server describes itself: the same as OpenAPI 3.1
at `GET /api/v1/openapi.json`, and as a page at `GET /api/v1/docs`.

* **Reading** needs a token unless the server is public ([who may read](../how-to/tokens.md#who-may-read)). What changes
  something needs `Authorization: Bearer <token>`; `pt2hub admin token` makes one. Routes below say so.
* **Errors** are problem documents (RFC 9457, `application/problem+json`): [Problem](#problem), with a stable `code`.
  Any route may answer with one; [Errors](errors.md) has every code with its status.
* **Times** are ISO 8601 in UTC; those of log lines are seconds since the epoch. **Digests** are `sha256:` and 64 hex digits.
* **Lists** come in pages. `next` is what the query's `after` or `before` must be for those that follow; null at the end.
* **Bytes** go by their digest and never change: answers carry `ETag` and may be cached for ever; `Range` is served.
  Where the storage is in S3, a `GET` is sent on to it (307), and uploads go to it by
  [requests that the server signs](#post-apiv1uploads). Signed addresses are secrets for as long as they are valid:
  send them no token, and keep their query out of logs.
* **Versions.** Every answer says the server's release in `Pt2hub-Version`; pt2hub's client says its own in `User-Agent`.
  Within `/api/v1` the API only grows: readers ignore fields that they do not know. A client or a server that is too old
  is refused with `client_too_old` or `server_too_old`.
"""
_METHODS = ("get", "post", "put", "patch", "delete")


def document() -> dict[str, Any]:
    """Return the OpenAPI document as it is served; no service is needed to describe routes."""
    config = ServerConfig.from_environ({"PT2HUB_HOME": "/nowhere"})
    with capture_logs():
        answer = create_app(cast("Container", None), config).test_client().get("/api/v1/openapi.json")
    return cast("dict[str, Any]", answer.get_json())


def page() -> str:
    """Return the page."""
    whole = document()
    schemas = whole["components"]["schemas"]
    routes = [*_routes(whole)]
    tags = {tag["name"]: tag.get("description", "") for tag in whole["tags"]}
    rows = [
        (md.link(md.code(title), md.anchor(title)), operation["summary"], tag)
        for tag in tags
        for title, operation in routes
        if tag in operation["tags"]
    ]
    parts = []
    for tag, meaning in tags.items():
        shown = [_operation(title, item, schemas) for title, item in routes if tag in item["tags"]]
        parts += [md.heading(2, tag.capitalize()), meaning, *shown]
    names = sorted(name for name, schema in schemas.items() if "properties" in schema and _used(name, whole))
    shapes = [_shape(name, schemas[name], schemas) for name in names]
    index = md.table(("route", "answers", "part"), rows)
    return md.document("The API", _INTRO, "## Routes", index, *parts, "## Shapes", *shapes)


def _routes(whole: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in whole["paths"].items():
        for method in _METHODS:
            if method in operations:
                yield f"{method.upper()} {path}", operations[method]


def _used(name: str, whole: dict[str, Any]) -> bool:
    return f'schemas/{name}"' in json.dumps(whole)


def _operation(title: str, item: dict[str, Any], schemas: dict[str, Schema]) -> str:
    parts = [
        md.heading(3, title),
        md.prose("\n\n".join(text for text in (item["summary"], item.get("description", "")) if text)),
        "Needs a token." if item.get("security") else "",
        _parameters(item, schemas),
        _body(item, schemas),
        _answers(item, schemas),
    ]
    return "\n\n".join(part for part in parts if part)


def _parameters(item: dict[str, Any], schemas: dict[str, Schema]) -> str:
    rows = []
    for given in item.get("parameters", ()):
        schema = given.get("schema", {})
        default = default_of(schema, required=given.get("required", False))
        kind, meaning = type_of(schema, _linker(schemas)), given.get("description", "")
        rows.append((md.code(given["name"]), given["in"], kind, default, limits_of(schema), meaning))
    return md.table(("parameter", "in", "type", "default", "limits", "meaning"), rows)


def _body(item: dict[str, Any], schemas: dict[str, Schema]) -> str:
    content = item.get("requestBody", {}).get("content", {})
    inline = [media["schema"] for media in content.values() if "properties" in media.get("schema", {})]
    tables = [_fields(schema, schemas) for schema in inline[:1]]  # one body, whatever its media type
    return "\n\n".join((f"Body: {_content(content, schemas)}.", *tables)) if content else ""


def _answers(item: dict[str, Any], schemas: dict[str, Schema]) -> str:
    rows = []
    for status, answer in item["responses"].items():
        if status != "default":
            phrase = HTTPStatus(int(status)).phrase
            said = answer.get("description", "")
            meaning = "" if said == phrase else said
            rows.append((f"{status} {phrase}", _content(answer.get("content", {}), schemas), meaning))
    return md.table(("answer", "content", "meaning"), rows)


def _content(content: dict[str, Any], schemas: dict[str, Schema]) -> str:
    """Shape and media types of a body."""
    shown: dict[str, list[str]] = {}
    for media, described_as in content.items():
        schema = described_as.get("schema", {})
        kind = type_of(schema, _linker(schemas))
        said = schema.get("description", "").rstrip(".") if kind == "object" else ""
        shown.setdefault(f"{kind} ({said})" if said else kind, []).append(media)
    return " or ".join(f"{kind} as {md.choice(medias)}" for kind, medias in shown.items())


def _shape(name: str, schema: Schema, schemas: dict[str, Schema]) -> str:
    return "\n\n".join((md.heading(3, name), schema.get("description", ""), _fields(schema, schemas)))


def _fields(schema: Schema, schemas: dict[str, Schema]) -> str:
    rows = [
        (
            md.code(key),
            type_of(field, _linker(schemas)),
            "" if required else default_of(field, required=False),
            limits_of(field),
            field.get("description", ""),
        )
        for key, field, required in fields(schema)
    ]
    return md.table(("field", "type", "default", "limits", "meaning"), rows)


def _linker(schemas: dict[str, Schema]) -> Any:
    """Return the links to a shape; names that only stand for another one lead to that, and a few words are given at once."""

    def linked(name: str) -> str:
        while "$ref" in schemas.get(name, {}):
            name = schemas[name]["$ref"].rpartition("/")[2]
        words = schemas.get(name, {}).get("enum")
        return md.choice(words) if words else md.link(name, md.anchor(name))

    return linked
