"""JSON Schema of lock files, published as docs/reference/pt2hub.lock.schema.json, and the check against it.

The check knows the keywords that this schema uses, since a library for all of JSON Schema would be the largest
dependency of the client (decision 0083).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pt2hub.client.config import URL_PATTERN
from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.locks import LOCK_SCHEMA
from pt2hub.domain.names import REFERENCE_PATTERN
from pt2hub.domain.storage import S3_ADDRESS
from pt2hub.errors import Detail

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]
_TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "integer": int}
_NAMES = {"object": "a table", "array": "an array", "string": "text", "integer": "an integer"}
_SHOWN = 80


def _table(description: str, fields: Schema, *, optional: tuple[str, ...] = ()) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": fields,
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def _text(pattern: str, description: str) -> Schema:
    return {"type": "string", "pattern": f"^(?:{pattern})$", "description": description}


def _list(items: Schema, description: str, *, at_least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": at_least, "description": description}


def _blob(description: str) -> Schema:
    size = {"type": "integer", "minimum": 0, "maximum": 1 << 60, "description": "Size in bytes."}
    return _table(description, {"digest": _text(DIGEST_PATTERN, "Digest of the content."), "size": size})


# Wider than the names of today's targets: a lock may name one that only a newer pt2hub knows.
_TARGET = _text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "Name of a target.")
_ARTIFACT = _table(
    "An artifact of the version.",
    {
        "target": _TARGET,
        "manifest": _blob("The manifest, whose digest pins everything else."),
        "config": _blob("The config."),
        "code": _blob("The code layer."),
        "weights": _blob("The weights layer, which targets share."),
    },
)
_FILE = _table(
    "An attached file of the version.",
    {
        "name": _text(r"[^/\\\x00-\x1f\x7f]{1,128}", "Name of the file, without folders."),
        "digest": _text(DIGEST_PATTERN, "Digest of the content."),
        "size": {"type": "integer", "minimum": 0, "maximum": 1 << 60, "description": "Size in bytes."},
    },
)
_MODEL = _table(
    "A locked reference.",
    {
        "reference": _text(REFERENCE_PATTERN, "The reference as it was declared."),
        "version": {
            "type": "integer",
            "minimum": 1,
            "maximum": 999_999_999,
            "description": "Number of the version that the reference is pinned to.",
        },
        "artifacts": _list(_ARTIFACT, "The version's artifacts, one per target.", at_least=1),
        "files": _list(
            _FILE, "The attached files that the artifacts have; absent if there are none.", at_least=1
        ),
    },
    optional=("files",),
)
_STORAGE = _table(
    "The bucket with the blobs, for clients with credentials of their own; absent if the server keeps them in a directory.",
    {
        "url": _text(
            S3_ADDRESS.pattern.replace("?P<bucket>", "").replace("?P<prefix>", "?:"), "`s3://bucket/prefix`."
        ),
        "endpoint": _text(URL_PATTERN, "Address of the S3 server; absent for AWS."),
        "region": _text(r"[A-Za-z0-9-]{1,60}", "Region of the bucket."),
    },
    optional=("endpoint", "region"),
)
SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "pt2hub.lock",
    **_table(
        "What references to models are pinned to.",
        {
            "schema": {
                "type": "integer",
                "minimum": 1,
                "maximum": LOCK_SCHEMA,
                "description": "Version of this format; 2 if there are attached files.",
            },
            "server": _text(URL_PATTERN, "Address of the server that the references were resolved at."),
            "targets": _list(
                _TARGET, "The only targets that are locked; absent for all of each version.", at_least=1
            ),
            "storage": _STORAGE,
            "models": _list(_MODEL, "The locked references, by name."),
        },
        optional=("targets", "storage", "models"),
    ),
}


def find_faults(value: Any, schema: Schema = SCHEMA, path: str = "") -> Iterator[Detail]:
    """Yield what is wrong with a document, field by field."""
    kind = schema["type"]
    if type(value) is not _TYPES[kind]:  # a bool is no integer
        yield Detail(path or "lock", f"must be {_NAMES[kind]}", given=_show(value))
    elif kind == "object":
        yield from _find_faults_of_table(value, schema, path)
    elif kind == "array":
        if len(value) < schema["minItems"]:
            yield Detail(path, "must not be empty")
        for index, item in enumerate(value):
            yield from find_faults(item, schema["items"], f"{path}[{index}]")
    elif kind == "string" and not re.fullmatch(schema["pattern"], value):
        yield Detail(path, "has the wrong form", given=_show(value), allowed=_form(schema))
    elif kind == "integer" and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield Detail(path, f"must be {schema['minimum']} to {schema['maximum']}", given=_show(value))


def _form(schema: Schema) -> str:
    is_digest = schema["pattern"] == DIGEST_PATTERN
    return "sha256: and 64 hexadecimal digits" if is_digest else str(schema["description"]).rstrip(".")


def _show(value: object) -> str:
    try:
        return repr(value)[:_SHOWN]
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number that is too long"


def _find_faults_of_table(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Detail]:
    fields = schema["properties"]
    for name in schema["required"]:
        if name not in value:
            yield Detail(f"{path}.{name}".lstrip("."), "is missing")
    for name, item in value.items():
        inner = f"{path}.{name}".lstrip(".")
        if name in fields:
            yield from find_faults(item, fields[name], inner)
        else:
            yield Detail(inner[:_SHOWN], "is unknown", allowed=", ".join(fields))
