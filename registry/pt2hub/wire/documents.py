"""Parser and writer for user documents in JSON or YAML."""

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
"""256 KiB: a hundred times a long spec, and what the slow YAML parser reads in three seconds."""
_MAX_INTEGER_BITS = 1024
"""Larger than any float or dtype needs, and printable by every JSON library."""
_SYNTAX_HINT = "Correct the document at this position; it may be YAML or JSON."
_SPEC_HINT = "The top level must have fields such as model:, source: and inputs:."
JSON_TYPE = "application/json"
YAML_TYPE = "application/yaml"


def parse_document(body: bytes, *, content_type: str = YAML_TYPE, hint: str = _SPEC_HINT) -> dict[str, Any]:
    """Parse a document.

    YAML aliases and duplicate keys are rejected: aliases can expand a small file without bound, and duplicate keys hide
    half of what was written.

    Args:
        body: The raw bytes.
        content_type: `application/json`, or anything else for YAML, which includes JSON.
        hint: Hint for documents that are not objects; by default for specs.

    Raises:
        InvalidInput: The document is malformed (with line and column), contains values that JSON cannot represent,
            or is not an object.
    """
    text = ""
    try:
        text = body.decode()
        value = json.loads(text, object_pairs_hook=_once) if content_type == JSON_TYPE else _load_yaml(text)
        _check(value, "")
    except UnicodeDecodeError as exc:
        raise _syntax_error(f"Invalid UTF-8: {exc.reason} at byte {exc.start}.") from exc
    except json.JSONDecodeError as exc:
        raise _syntax_error(f"Invalid JSON: {exc.msg}.", exc.lineno, exc.colno) from exc
    except yaml.MarkedYAMLError as exc:
        raise _yaml_error(exc, text) from exc
    except yaml.reader.ReaderError as exc:
        before = text[: exc.position].split("\n")
        raise _syntax_error(
            f"Invalid YAML: the character {chr(exc.character)!a} is not allowed.",
            len(before),
            len(before[-1]) + 1,
        ) from exc
    except (yaml.YAMLError, ValueError) as exc:  # numbers that the parsers reject
        raise _syntax_error(f"The document cannot be read: {str(exc).splitlines()[0][:200]}.") from exc
    except (LookupError, AttributeError, TypeError) as exc:  # PyYAML raises these for `!!int ""` and similar
        raise _syntax_error(
            "The document cannot be read: a value does not match its tag (such as !!int)."
        ) from exc
    except RecursionError as exc:
        raise _syntax_error("The document is nested too deeply.") from exc
    if not isinstance(value, dict):
        raise InvalidInput(
            f"The document must be an object, got {_name(value)}.",
            where="document",
            hint=hint,
        )
    return value


class _Loader(yaml.SafeLoader):
    """YAML loader that rejects aliases and duplicate keys."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.get_event()  # type: ignore[no-untyped-call]  # missing in PyYAML's stubs
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
                raise yaml.MarkedYAMLError(problem=f"duplicate key {name}", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """YAML dumper whose output `_Loader` reads back unchanged."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's
        return True


for _one in (_Loader, _Dumper):
    _one.add_implicit_resolver(  # 1e-3 is a number everywhere except in YAML 1.1
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )


def write_document(document: Mapping[str, Any]) -> str:
    """Format a document as readable YAML: fields in order, short lists on one line.

    Args:
        document: JSON values; `parse_document` restores them.
    """
    return yaml.dump(
        dict(document),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )


def _load_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice}")
    return values


def _check(value: Any, path: str) -> None:
    """Reject values that JSON cannot represent; PostgreSQL and the canonical form would fail on them later."""
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
        raise _unfit(path, f"{value} is not finite")
    elif isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        raise _unfit(path, "the number is too large")
    elif not isinstance(value, str | int | float | None):
        raise _unfit(path, f"{_name(value)} cannot be represented in JSON; quote it")


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise _unfit(path, "the text contains half a surrogate pair") from exc
    if "\0" in text:
        raise _unfit(path, "the text contains a NUL character")


def _unfit(path: str, message: str) -> InvalidInput:
    return InvalidInput(f"Invalid value: {message}.", where=path or "document")


def _yaml_error(error: yaml.MarkedYAMLError, text: str) -> InvalidInput:
    """Create an error for malformed YAML; of an unclosed text or list it has the start, since the parser notices it at the end."""
    mark, begun, problem = error.problem_mark, error.context_mark, error.problem or ""
    is_open = mark is not None and begun is not None and mark.index >= len(text.rstrip())
    cause = f"{error.context}, {problem}" if problem.startswith("but ") else problem or error.context
    at = begun if is_open or mark is None else mark
    position = (at.line + 1, at.column + 1) if at else ()
    return _syntax_error(f"Invalid YAML: {cause}{'; it begins here' if is_open else ''}.", *position)


def _syntax_error(message: str, line: int | None = None, column: int | None = None) -> InvalidInput:
    where = f"document, line {line}, column {column}" if line else "document"
    context = {"line": line, "column": column} if line else None
    return InvalidInput(message, where=where, context=context, hint=_SYNTAX_HINT)


def _name(value: Any) -> str:
    names = {list: "a list", str: "text", type(None): "empty", int: "a number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")
