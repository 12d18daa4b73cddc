"""Documents that users write, JSON or YAML, as plain JSON values."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import yaml

from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DOCUMENT_BYTES = 1 << 18
"""256 KiB: a hundred times a long spec, and no more than YAML's slow parser reads in three seconds."""
_MOST_BITS = 1024
"""Of a whole number: more than any float or dtype takes, and what every JSON library can print."""
_CORRECT = "Correct the document at that place; it may be YAML or JSON."
_OF_SPEC = "Write fields such as model:, source: and inputs: at the top level."
JSON_TYPE = "application/json"
YAML_TYPE = "application/yaml"


def parse_document(body: bytes, *, content_type: str = YAML_TYPE, hint: str = _OF_SPEC) -> dict[str, Any]:
    """Reads a document.

    YAML's aliases and keys given twice are refused: the first can grow a small file without bound, the
    second hides half of what was written.

    Args:
        body: The bytes as sent.
        content_type: `application/json`, or anything else for YAML, of which JSON is a part.
        hint: How a document of its kind begins, where it is no object; a spec unless said.

    Raises:
        InvalidInput: It is not well-formed (with line and column), holds values that JSON has no form for,
            or is no object.
    """
    text = ""
    try:
        text = body.decode()
        value = json.loads(text, object_pairs_hook=_once) if content_type == JSON_TYPE else _load_yaml(text)
        _check(value, "")
    except UnicodeDecodeError as exc:
        raise _malformed(f"It is not UTF-8: {exc.reason} at byte {exc.start}.") from exc
    except json.JSONDecodeError as exc:
        raise _malformed(f"It is not JSON: {exc.msg}.", exc.lineno, exc.colno) from exc
    except yaml.MarkedYAMLError as exc:
        raise _no_yaml(exc, text) from exc
    except yaml.reader.ReaderError as exc:
        before = text[: exc.position].split("\n")
        raise _malformed(
            f"It is not YAML: the character {chr(exc.character)!a} is not allowed.",
            len(before),
            len(before[-1]) + 1,
        ) from exc
    except (yaml.YAMLError, ValueError) as exc:  # numbers that the parsers refuse
        raise _malformed(f"It cannot be read: {str(exc).splitlines()[0][:200]}.") from exc
    except (LookupError, AttributeError, TypeError) as exc:  # PyYAML's, of `!!int ""` and the like
        raise _malformed("It cannot be read: a value does not fit its tag (such as !!int).") from exc
    except RecursionError as exc:
        raise _malformed("It is nested too deeply.") from exc
    if not isinstance(value, dict):
        raise InvalidInput(
            f"The document is {_name(value)} where an object belongs.",
            where="document",
            hint=hint,
        )
    return value


class _Loader(yaml.SafeLoader):
    """YAML without aliases and without keys given twice."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401  # PyYAML's
        if self.check_event(yaml.AliasEvent):
            event: Any = self.get_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs lack it
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not allowed", problem_mark=event.start_mark
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name in seen:
                raise yaml.MarkedYAMLError(problem=f"{name} is given twice", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """What `_Loader` reads as it was."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002  # PyYAML's
        return True


for _one in (_Loader, _Dumper):
    _one.add_implicit_resolver(  # 1e-3 is a number to everyone but YAML 1.1
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )


def write_document(document: Mapping[str, Any]) -> str:
    """A document as YAML, for people: fields in their order, short lists on a line.

    Args:
        document: JSON values; `parse_document` reads the same again.
    """
    return yaml.dump(
        dict(document),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )


def _load_yaml(text: str) -> Any:  # noqa: ANN401  # any value
    return yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} is given twice")
    return values


def _check(value: Any, path: str) -> None:  # noqa: ANN401  # any value
    """Refuses what JSON has no form for; PostgreSQL and the canonical form would choke on it later."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise _unfit(f"{path}.{key}".strip("."), f"the key {key!r} is not a string; quote it")
            _check_text(key, path)
            _check(item, f"{path}.{key}".strip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]")
    elif isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _unfit(path, f"{value} is not a finite number")
    elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise _unfit(path, "the number is too large")
    elif not isinstance(value, str | int | float | None):
        raise _unfit(path, f"{_name(value)} has no form in JSON; quote it")


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise _unfit(path, "the text holds half a surrogate pair") from exc
    if "\0" in text:
        raise _unfit(path, "the text holds a NUL character")


def _unfit(path: str, message: str) -> InvalidInput:
    return InvalidInput(f"A value cannot be taken: {message}.", where=path or "document")


def _no_yaml(error: yaml.MarkedYAMLError, text: str) -> InvalidInput:
    """The parser misses what closes a text or a list at the end only; its place is told where it begins."""
    mark, begun, problem = error.problem_mark, error.context_mark, error.problem or ""
    is_open = mark is not None and begun is not None and mark.index >= len(text.rstrip())
    said = f"{error.context}, {problem}" if problem.startswith("but ") else problem or error.context
    place = begun if is_open or mark is None else mark
    position = (place.line + 1, place.column + 1) if place else ()
    return _malformed(f"It is not YAML: {said}{'; it begins here' if is_open else ''}.", *position)


def _malformed(message: str, line: int | None = None, column: int | None = None) -> InvalidInput:
    where = f"document, line {line}, column {column}" if line else "document"
    context = {"line": line, "column": column} if line else None
    return InvalidInput(message, where=where, context=context, hint=_CORRECT)


def _name(value: Any) -> str:  # noqa: ANN401  # any value
    names = {list: "a list", str: "text", type(None): "empty", int: "a number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")
