"""JSON Schema in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reference_generator.markdown import code, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Schema = dict[str, Any]
_LARGE = 1 << 16
_NUMBER, _INTEGER = "number", "integer"


def type_of(schema: Schema, link: Callable[[str], str]) -> str:
    """Return what a schema takes.

    Args:
        schema: The schema.
        link: Refers to a named schema.
    """
    *first, last = dict.fromkeys(_alternatives(schema, link))
    return f"{', '.join(first)} or {last}" if first else last


def _alternatives(schema: Schema, link: Callable[[str], str]) -> list[str]:
    if "$ref" in schema:
        return [link(schema["$ref"].rpartition("/")[2])]
    if choices := schema.get("anyOf", schema.get("oneOf")):
        found = [word for item in choices for word in _alternatives(item, link)]
        return [word for word in found if word != _INTEGER or _NUMBER not in found]
    if words := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return [code(str(word)) for word in words]
    return [_plain(schema, link)]


def _plain(schema: Schema, link: Callable[[str], str]) -> str:
    match schema.get("type"):
        case "array":
            return f"list of {type_of(schema.get('items', {}), link)}"
        case "object":
            return _object(schema, link)
        case "string":
            return "bytes" if schema.get("format") == "binary" else "text"
        case "number" | "integer" | "boolean" | "null" as kind:
            return str(kind)
        case _:
            return "any JSON value"


def _object(schema: Schema, link: Callable[[str], str]) -> str:
    named = [*schema.get("patternProperties", {}).values()]
    other = schema.get("additionalProperties")
    values = named or ([other] if isinstance(other, dict) and other else [])
    return f"object: name to {type_of(values[0], link)}" if values else "object"


def limits_of(schema: Schema) -> str:
    """Return what else a value must keep to."""
    found = [_range(schema), _size(schema, "Length", "characters"), _size(schema, "Items", "entries")]
    found += [f"matches {code(_whole(schema['pattern']))}" if "pattern" in schema else ""]
    found += [f"names match {code(_whole(pattern))}" for pattern in schema.get("patternProperties", {})]
    found += [limits_of(item) for item in schema.get("anyOf", ())]
    inner = limits_of(schema["items"]) if "items" in schema else ""
    return ", ".join([item for item in found if item] + ([f"each {inner}"] if inner else []))


def fields(schema: Schema) -> Iterator[tuple[str, Schema, bool]]:
    """Yield name, schema and whether it must be given, of each field of an object."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield name, field, name in required


def default_of(field: Schema, *, required: bool) -> str:
    """Return what holds where a field is left out."""
    if required:
        return "required"
    return code(value(field["default"])) if "default" in field else ""


def _range(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{_number(low)} to {_number(high)}"
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    return ", ".join(f"{word} {_number(schema[key])}" for key, word in words.items() if key in schema)


def _size(schema: Schema, kind: str, unit: str) -> str:
    low, high = schema.get(f"min{kind}"), schema.get(f"max{kind}")
    if high is None:
        return f"at least {low} {unit}" if low else ""
    return f"{low} to {high} {unit}" if low else f"at most {high} {unit}"


def _number(number: float) -> str:
    """Return a number; OpenAPI tools turn limits into floats."""
    whole = int(number)
    if whole != number:
        return str(number)
    size = abs(whole)
    if size >= _LARGE and size & (size - 1) == 0:
        return f"{'-' if whole < 0 else ''}2^{size.bit_length() - 1}"
    return str(whole)


def _whole(pattern: str) -> str:
    """Return a pattern without the marks that it means the whole text, as all of ours do."""
    inner = pattern.removeprefix("^").removesuffix("$")
    return inner[3:-1] if inner.startswith("(?:") and inner.endswith(")") else inner
