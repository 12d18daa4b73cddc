"""Messages of pt2hub for pydantic's errors, whose own words are those of a library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.names import ALIAS_PATTERN, MODEL_PATTERN
from pt2hub.domain.performance.metrics import METRIC_PATTERN

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MESSAGES = {
    "missing": "required field is missing",
    "extra_forbidden": "unknown field",
    "literal_error": "unknown value",
    "enum": "unknown value",
    "string_pattern_mismatch": "invalid format",
    "string_too_short": "the text is too short",
    "string_too_long": "the text is too long",
    "too_short": "too few items",
    "too_long": "too many items",
    "greater_than": "the number is out of range",
    "greater_than_equal": "the number is out of range",
    "less_than": "the number is out of range",
    "less_than_equal": "the number is out of range",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "the number is out of range",
    "finite_number": "must be a finite number",
    "timezone_aware": "must be a time with its zone, such as 2026-11-22T11:00:00+01:00",
}
"""Messages by type of error; the allowed values are reported separately."""
_TYPES = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "model": "an object",
    "datetime": "a time with its zone",
}
_LIMITS = {
    "ge": "at least {}",
    "gt": "above {}",
    "le": "at most {}",
    "lt": "below {}",
    "min_length": "at least {}",
    "max_length": "at most {}",
    "expected": "{}",
    "allowed": "{}",
}
"""Texts for the limits that pydantic reports with an error."""
_MODEL = "team/name in lowercase letters, digits and single . _ - between them"
_PATTERNS = {
    DIGEST_PATTERN: "sha256: and 64 lowercase hex digits",
    MODEL_PATTERN: _MODEL,
    f"({MODEL_PATTERN})?": _MODEL,
    ALIAS_PATTERN: "a letter or _, then letters, digits and . _ -, at most 128 characters",
    METRIC_PATTERN: "a lowercase letter, then lowercase letters, digits and _, at most 64 characters",
    "[A-Za-z0-9-]+": "letters, digits and -",
    r"[^\x00]*": "text without the character NUL",
}
"""Words for patterns of fields, by the pattern without its anchors."""
_LENGTHS = frozenset({"min_length", "max_length"})


def is_type_error(item: ErrorDetails) -> bool:
    """Return whether a value is of another type than the field."""
    return item["type"].endswith(("_type", "_parsing"))


def to_message(item: ErrorDetails) -> str:
    """Return what is wrong with a field."""
    type_ = f"string_{item['type']}" if _is_length_of_text(item) else item["type"]
    if type_ in _MESSAGES:
        return _MESSAGES[type_]
    wanted = _TYPES.get(item["type"].partition("_")[0]) if is_type_error(item) else None
    return f"must be {wanted}" if wanted else item["msg"]


def format_limits(item: ErrorDetails) -> str | None:
    """Return the values that a field allows; None if its error does not name them."""
    context = item.get("ctx", {})
    if "pattern" in context:
        return _describe_pattern(context["pattern"])
    if {"min", "max"} <= context.keys():
        return f"{context['min']} to {context['max']}"
    limits = [form.format(_limit(item, key)) for key, form in _LIMITS.items() if key in context]
    return ", ".join(limits) or None


def _is_length_of_text(item: ErrorDetails) -> bool:
    """Return whether the length of a text is wrong, which pydantic counts as items after a validator."""
    return item["type"] in {"too_short", "too_long"} and isinstance(item["input"], str)


def _describe_pattern(pattern: str) -> str:
    """Return what a pattern allows in words; the pattern itself where nobody wrote any."""
    bare = pattern.removeprefix("^").removesuffix("$")
    inner = bare.removeprefix("(?:").removesuffix(")")  # as `domain.publishing.spec_base.whole` anchors one
    return _PATTERNS.get(bare) or _PATTERNS.get(inner) or f"matching {pattern}"


def _limit(item: ErrorDetails, key: str) -> str:
    limit = item["ctx"][key]
    if key in _LENGTHS:
        is_text = item["type"].startswith("string") or _is_length_of_text(item)
        unit = "character" if is_text else "item"
        return f"{limit} {unit}{'' if limit == 1 else 's'}"
    if isinstance(limit, float):
        return f"{limit:g}"
    return str(limit).replace("'", '"')  # strings in JSON's quotes, like the given value
