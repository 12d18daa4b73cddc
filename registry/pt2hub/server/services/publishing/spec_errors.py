"""Parsing of specs, and validation errors in the document's terms: path, given, allowed."""

from __future__ import annotations

import difflib
import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from pt2hub.domain.digests import canonical_json
from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import Detail, InvalidInput, walk
from pt2hub.server.services.validation_messages import format_limits, is_type_error, to_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

    from pt2hub.errors import Pt2hubError

_MAX_GIVEN_CHARS = 80
MAX_DETAILS = 100
"""Problems that one error lists: a document may have tens of thousands of unknown fields."""
_DIGEST = "sha256: and 64 hex digits"
_ARGUMENT = "an argument, such as x, or a path into one: batch.image in a dict, pair[0] in a list, state(0) in a tuple"
_FORMS = {
    "model": "team/name in lowercase letters, digits and . _ -",
    "factory": "module:function, such as torchvision.models:resnet18",
    "code": _DIGEST,
    "entry": "module:function, such as net:build",
    "requirements": "a package and its versions, such as timm>=1.0",
    "program": _DIGEST,
    "operators": "a module of the code, such as kernels",
    "weights": _DIGEST,
    "digest": _DIGEST,
    "name": _ARGUMENT,
    "shape": "a size, or the name of a dimension in lowercase letters, digits and _",
    "example": _DIGEST,
    "dims": "a name in lowercase letters, digits and _, such as batch",
    "fixed": _ARGUMENT,
    "regions": "a module path or class name, such as encoder.layer.3 or BertLayer",
    "outputs": "a path to a value, such as .last_hidden_state, [0] or .hidden_states[0]",
    "alias": "a name such as prod: letters, digits and . _ - after a letter",
    "metric": "a name in lowercase letters, digits and _, such as latency_p50",
    "metrics": "a name in lowercase letters, digits and _, such as latency_p50",
    "implementation": "artifact, eager, torch_compile, or 1 to 32 of a-z and _",
    "torch": "a release such as 2.13.0+cpu",
}
"""Readable formats of fields that have a pattern."""
_ADVICE = {
    "source.code": "`pt2hub publish --code FOLDER` packs the folder, uploads it and writes its digest.",
    "source.program": "`pt2hub publish --program FILE` splits a torch.export.save file, uploads program and "
    "weights, and writes their digests.",
    "weights": "The server does not fetch weights: `pt2hub publish --weights NAME` fetches them, such as "
    "torchvision:ResNet18_Weights.DEFAULT or hf:team/name@main, or reads a safetensors file, uploads them and "
    "writes their digest.",
    "files": "`pt2hub publish` uploads the files that a spec or --file names by path, and writes their digests.",
    "targets": "GET /api/v1/targets lists the targets that workers offer.",
}
"""Advice for fields whose values come from elsewhere."""
_CODE_FIELDS = frozenset({"entry", "entry_is", "requirements"})


@dataclass(frozen=True, slots=True)
class Form:
    """The schema of a document, with its name and hint for errors."""

    name: str
    shape: type[BaseModel]
    hint: str


_SPEC = Form("spec", Spec, "The schema is at /api/v1/spec.schema.json")


def parse_spec(document: Mapping[str, Any]) -> Spec:
    """Read a spec.

    Raises:
        InvalidInput: Fields are wrong; the subclass of its code where all problems have the same code.
    """
    try:
        spec = Spec.model_validate(dict(document))
    except ValidationError as exc:
        raise explain_validation_error(exc, document, _SPEC) from exc
    _check_storable(spec)
    return spec


def _check_storable(spec: Spec) -> None:
    """Refuse values that have no canonical JSON or that the database cannot store."""
    try:
        canonical_json({**spec.canonical(), **spec.settings()})
    except ValueError as exc:
        raise InvalidInput(
            "The spec contains a number that is not finite or text that is not Unicode",
            where="spec",
            hint=str(exc),
        ) from exc
    if "\x00" in _all_text(spec.canonical()):
        raise InvalidInput("The spec contains the character NUL", where="spec", hint="Remove it.")


def _all_text(value: Any) -> str:
    if isinstance(value, dict):
        return "".join([*value, *(_all_text(item) for item in value.values())])
    if isinstance(value, list):
        return "".join(_all_text(item) for item in value)
    return value if isinstance(value, str) else ""


def explain_validation_error(exc: ValidationError, document: Mapping[str, Any], form: Form) -> Pt2hubError:
    """Translate pydantic's error to the document's terms.

    Returns:
        InvalidInput, or the subclass for the code that all problems have.
    """
    errors = exc.errors(include_url=False)[:MAX_DETAILS]
    problems = _relevant([(_path_of(item, document) or form.name, item) for item in errors])
    details = tuple(_detail(path, items, form) for path, items in problems.items())
    hint = " ".join([*(_advice(details, document) if form is _SPEC else ()), form.hint])
    codes = {item["type"] for items in problems.values() for item in items}
    by_code = {cls.code: cls for cls in walk()}
    cls = by_code.get(next(iter(codes)), InvalidInput) if len(codes) == 1 else InvalidInput
    return refusal(cls, details, form, hint, more=exc.error_count() > MAX_DETAILS)


def refusal(
    cls: type[Pt2hubError], details: tuple[Detail, ...], form: Form, hint: str, *, more: bool = False
) -> Pt2hubError:
    """Return the error for a document with invalid fields.

    Args:
        more: Whether there may be further ones.
    """
    if len(details) == 1:
        return cls(details[0].message, where=details[0].path, hint=hint, details=details)
    count = f"{len(details)} or more" if more else f"{len(details)}"
    return cls(f"{count} fields of the {form.name} are invalid", where=form.name, hint=hint, details=details)


def _advice(details: Sequence[Detail], document: Mapping[str, Any]) -> list[str]:
    lists = {"targets": "targets[", "files": "files."}
    wrong = {
        next((name for name, start in lists.items() if detail.path.startswith(start)), detail.path)
        for detail in details
    }
    source = document.get("source")
    if "weights" in wrong and isinstance(source, dict) and "program" in source:  # made together
        wrong = (wrong - {"weights"}) | {"source.program"}
    sources = [_of_source(source)] if "source" in wrong else []
    return sources + [advice for path, advice in _ADVICE.items() if path in wrong]


def _of_source(source: object) -> str:
    """Return advice for a source that is missing or has no kind."""
    given = source if isinstance(source, dict) else {}
    if _CODE_FIELDS & given.keys() and not {"factory", "code", "program"} & given.keys():
        return f"{min(_CODE_FIELDS & given.keys())} belongs to code: {_ADVICE['source.code']}"
    return "Write a factory, or pass the model with `pt2hub publish --code FOLDER` or `--program FILE`."


def _path_of(item: ErrorDetails, document: object) -> str:
    """Return the path of an error as the document's author would write it: `inputs[0].shape[1]`.

    pydantic's locations also name the branch of a union that was tried; such parts are not in the document and are
    left out. A missing field is not there either, but its author must see it.
    """
    path, here = "", document
    for part in item["loc"]:
        if isinstance(here, list) and isinstance(part, int) and part < len(here):
            path, here = f"{path}[{part}]", here[part]
        elif isinstance(here, dict) and part in here:
            path, here = f"{path}.{part}", here[part]
    if item["type"] == "missing":
        path = f"{path}.{item['loc'][-1]}"
    if inner := item.get("ctx", {}).get("path"):  # an error about several fields names the one to change
        path = f"{path}.{inner}"
    return path.removeprefix(".")


def _relevant(problems: list[tuple[str, ErrorDetails]]) -> dict[str, list[ErrorDetails]]:
    """Group problems by path, without those of union branches that the author did not mean.

    A negative size is also "not a string": if one branch accepts the type and another does not, only the first
    one's error helps.
    """
    by_path: dict[str, list[ErrorDetails]] = {}
    for path, item in problems:
        by_path.setdefault(path, []).append(item)
    kept = {}
    for path, items in by_path.items():
        meant = [item for item in items if not is_type_error(item)]
        deeper = any(other != path and other.startswith((f"{path}.", f"{path}[")) for other in by_path)
        if meant or not deeper:
            kept[path] = meant or items
    return kept


def _detail(path: str, items: list[ErrorDetails], form: Form) -> Detail:
    messages = list(dict.fromkeys(to_message(item) for item in items))
    allowed = (
        " or ".join(dict.fromkeys(text for item in items if (text := _allowed_values(item, form)))) or None
    )
    missing = items[0]["type"] == "missing"
    return Detail(
        path=path,
        message=" or ".join(messages).removesuffix(f"; allowed: {allowed}"),
        given=None if missing else _short(items[0].get("ctx", {}).get("given", items[0]["input"])),
        allowed=allowed,
    )


def _allowed_values(item: ErrorDetails, form: Form) -> str | None:
    if item["type"] == "extra_forbidden":
        return _list_fields(item["loc"], form)
    if item["type"] == "string_pattern_mismatch":
        field = next((part for part in reversed(item["loc"]) if part in _FORMS), None)
        return _FORMS[field] if isinstance(field, str) else format_limits(item)
    return format_limits(item)


def _list_fields(location: Sequence[int | str], form: Form) -> str:
    """Return the fields that exist where an unknown one was given, likely misspellings first."""
    node = schema = _schema(form.shape)
    for part in location[:-1]:
        node = _step(node, part, schema)
    fields = list(node.get("properties", {}))
    similar = difflib.get_close_matches(str(location[-1]), fields)
    return ", ".join([*similar, *(field for field in fields if field not in similar)])


@functools.cache
def _schema(shape: type[BaseModel]) -> dict[str, Any]:
    return shape.model_json_schema()


def _step(node: dict[str, Any], part: int | str, schema: dict[str, Any]) -> dict[str, Any]:
    """Follow one part of a location in a JSON schema; a union's branch stays on the object among its choices."""
    tagged = [choice["$ref"] for choice in node.get("oneOf", ()) if choice["$ref"].endswith(f"/{part}")]
    if tagged:
        node = {"$ref": tagged[0]}
    elif part in node.get("properties", {}):
        node = node["properties"][part]
    elif isinstance(part, int):
        node = node.get("items", {})
    else:  # a key that the author chose, such as the name of a dimension
        extra = node.get("additionalProperties")
        node = next(
            iter(node.get("patternProperties", {}).values()), extra if isinstance(extra, dict) else node
        )
    for choice in node.get("anyOf", ()):
        if "$ref" in choice:
            node = choice
    if reference := node.get("$ref"):
        node = schema["$defs"][reference.rpartition("/")[2]]
    return node


def _short(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a number too long to print"
    return text if len(text) <= _MAX_GIVEN_CHARS else f"{text[: _MAX_GIVEN_CHARS - 3]}..."
