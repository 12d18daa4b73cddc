"""docs/reference/spec.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import override

from pt2hub.domain.publishing.spec import Spec
from pt2hub.wire.documents import MAX_DOCUMENT_BYTES
from reference_generator import markdown as md
from reference_generator.schemas import Schema, default_of, fields, limits_of, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTRO = f"""
A spec says where a model comes from, what its inputs look like and what to build it for. It is one YAML or JSON
document of at most {MAX_DOCUMENT_BYTES >> 10} KiB, sent by `pt2hub publish spec.yaml`, `pt2hub.publish(spec)` or `POST /api/v1/versions`.
Fields that do not exist are refused, with the names that do; so are YAML's aliases and keys given twice.

A running server has the same as JSON Schema, for editors and checks: `GET /api/v1/spec.schema.json`.
[Publish a model](../how-to/publish-a-model.md) explains the choices; this page lists the fields.

All fields but the required ones may be left out. With their examples:
"""


def page() -> str:
    """Return the page."""
    whole = Spec.model_json_schema(schema_generator=_InOrder)
    found = [("", whole), *_below("", whole, whole["$defs"])]
    contents = md.bullets(md.link(_title(path), md.anchor(_title(path))) for path, _ in found)
    parts = [_section(path, schema, whole["$defs"]) for path, schema in found]
    return md.document("The spec", _INTRO, md.fence(_example(whole), "yaml"), contents, *parts)


class _InOrder(GenerateJsonSchema):
    """Keeps the fields of examples as they were written."""

    @override
    def sort(self, value: Schema, parent_key: str | None = None) -> Schema:
        return value


def _below(path: str, schema: Schema, named: dict[str, Schema]) -> Iterator[tuple[str, Schema]]:
    """Yield every object below one with the path to it, in the order of reading."""
    for name, field, _ in fields(schema):
        for part, step in _parts(field):
            inner = f"{path}.{name}".lstrip(".") + step
            yield inner, named[part]
            yield from _below(inner, named[part], named)
        for kind in field.get("oneOf", ()):
            part = kind["$ref"].rpartition("/")[2]
            told = named[part]["required"][0]
            examples = [item for item in field["examples"] if told in item]
            yield f"{name} {told}", {**named[part], "examples": examples}


def _parts(field: Schema, step: str = "") -> Iterator[tuple[str, str]]:
    """Yield the objects below a field, with what leads from its name to them."""
    if "$ref" in field and field["$ref"] != "#/$defs/JsonValue":
        yield field["$ref"].rpartition("/")[2], step
    for item in field.get("anyOf", ()):
        yield from _parts(item, step)
    yield from _parts(field["items"], step + "[]") if "items" in field else ()
    for item in field.get("patternProperties", {}).values():
        yield from _parts(item, step + ".<name>")


def _title(path: str) -> str:
    """Return the heading of an object; of one that is told from others by a field, with that field."""
    place, _, told = path.partition(" ")
    return " with ".join(map(md.code, (place, told))) if told else md.code(path) if path else "The document"


def _section(path: str, schema: Schema, named: dict[str, Schema]) -> str:
    head = ("field", "type", "default", "limits", "example", "meaning")
    rows = [
        (
            md.code(name),
            type_of(field, _inner),
            default_of(field, required=required),
            limits_of(field),
            md.code(md.value(field["examples"][0])) if "examples" in field else "",
            # pydantic leaves out what the object's own description says too
            field.get("description", "") or named[field["$ref"].rpartition("/")[2]]["description"],
        )
        for name, field, required in sorted(
            fields(schema), key=lambda item: not item[2] if " " in path else 0
        )
    ]
    place = path.partition(" ")[0]
    examples = md.bullets(md.code(f"{place}: {md.value(item)}") for item in schema.get("examples", ()))
    parts = (md.heading(2, _title(path)), schema.get("description", ""), examples, md.table(head, rows))
    return "\n\n".join(part for part in parts if part)


def _inner(name: str) -> str:
    return "any JSON value" if name == "JsonValue" else "object"


def _example(whole: Schema) -> str:
    """Return the fields of a spec with their last examples, which go together."""
    lines = []
    for name, field, _ in fields(whole):
        inner = whole["$defs"].get(field.get("$ref", "").rpartition("/")[2], {})
        given = {key: item["examples"][0] for key, item, _ in fields(inner) if "examples" in item}
        lines.append(f"{name}: {md.value(field['examples'][-1] if 'examples' in field else given)}")
    return "\n".join(lines)
