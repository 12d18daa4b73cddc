"""Differences between two program keys, and why code was or was not reused."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import KEY_SCHEMA
from pt2hub.domain.codec import encode
from pt2hub.domain.differences.fields import FieldDifference, compare_fields, limit_fields
from pt2hub.domain.digests import DIGEST_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pt2hub.domain.artifacts import ArtifactConfig

PART_NAMES = {
    "graph": "the exported graph",
    "operators": "the code of custom operators",
    "signature": "the call signature",
    "constants": "the form of the constants",
    "literals": "the values in the code",
    "options": "compiler options",
    "threads": "the number of threads",
    "settings": "process-wide settings",
    "target": "the target",
    "toolchain": "the toolchain",
    "baked": "the weights that are baked into the code",
    "regions": "the modules that are regions",
    "region_code": "the way in which regions are compiled",
}
_PLURAL = frozenset({"literals", "options", "settings", "baked", "regions"})
_NOT_CODE = frozenset({"schema", "reuse"})
"""Fields with a sentence of their own; `reuse` has a random value, which would always differ."""
_FORM = ("shape", "stride", "dtype")
MAX_NAMED = 4
"""Fields that a sentence names; the others are counted."""
_MAX_VALUE_CHARS = 60
_MAX_REASON_CHARS = 300
_DIGEST = re.compile(DIGEST_PATTERN)


@dataclass(frozen=True, slots=True)
class KeyDifferences:
    """Differences between two program keys.

    Attributes:
        same: Whether the keys are equal.
        reasons: Why the code of the one was or was not reused for the other, as sentences.
        fields: Fields that differ; a digest that the artifacts resolve is replaced by what it covers.
        left_out: Number of further fields.
        missing: Why the fields cannot be compared; empty if they can.
    """

    same: bool
    reasons: tuple[str, ...] = ()
    fields: tuple[FieldDifference, ...] = ()
    left_out: int = 0
    missing: str = ""


def compare_keys(before: ArtifactConfig, after: ArtifactConfig, *, graph: str = "") -> KeyDifferences:
    """Compare the program keys of two artifacts, field by field.

    Args:
        graph: How the exported graphs differ (`3 nodes added`); empty if unknown.
    """
    one, other = before.key, after.key
    never = tuple(_never_reused(before, after))
    if one.digest == other.digest:
        return KeyDifferences(same=True, reasons=("The program keys are the same.", *never))
    if not one.fields or not other.fields:
        return KeyDifferences(
            same=False,
            reasons=("The program keys differ.", *never),
            missing="The fields of a program key are not recorded: an artifact was built before pt2hub kept them.",
        )
    found = compare_fields(code_fields(one.fields), code_fields(other.fields))
    expanded = [item for field in found for item in _expand(field, before, after)]
    fields, left_out = limit_fields(expanded)
    reasons = (*_schema_reasons(one.schema, other.schema), *field_reasons(expanded, graph), *never)
    unexplained = "The program keys differ, but their recorded fields do not."
    return KeyDifferences(False, reasons or (unexplained,), fields, left_out)


def code_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a key that say what shapes the code."""
    return {name: value for name, value in fields.items() if name not in _NOT_CODE}


def _expand(
    field: FieldDifference, before: ArtifactConfig, after: ArtifactConfig
) -> Sequence[FieldDifference]:
    """Replace the digest of the signature or the constants by the differences that the configs have."""
    if field.path == "signature":
        found = compare_fields(encode(before.signature), encode(after.signature))
    elif field.path == "constants":
        found = list(_compare_forms(_constant_forms(before), _constant_forms(after)))
    else:
        return [field]
    return [replace(item, path=f"{field.path}.{item.path}") for item in found] or [field]


def _constant_forms(config: ArtifactConfig) -> dict[str, dict[str, Any]]:
    table = encode(config.constants.table)
    return {item["fqn"]: {name: item[name] for name in _FORM} for item in table}


def _compare_forms(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]
) -> Iterator[FieldDifference]:
    """Yield what differs of constants that both have, then those that only one has."""
    both = before.keys() & after.keys()
    one, other = ({name: form for name, form in forms.items() if name in both} for forms in (before, after))
    yield from compare_fields(one, other)
    for name, form in before.items():
        if name not in both:
            yield FieldDifference(name, "removed", before=_form_text(form))
    for name, form in after.items():
        if name not in both:
            yield FieldDifference(name, "added", after=_form_text(form))


def _form_text(form: dict[str, Any]) -> str:
    return f"{form['dtype']}{form['shape']}, strides {form['stride']}"


def _schema_reasons(before: int, after: int) -> Iterator[str]:
    if before != after:
        yield (
            f"The keys have schemas {before} and {after}: code with a key of an older schema than {KEY_SCHEMA} is not reused."
        )


def _never_reused(before: ArtifactConfig, after: ArtifactConfig) -> Iterator[str]:
    reasons = before.key.never_reused, after.key.never_reused
    if reasons[0] == reasons[1] and reasons[0]:
        yield f"The code of both is never reused: {_join(reasons[0])}."
        return
    for side, own in zip(("first", "second"), reasons, strict=True):
        if own:
            yield f"The code of the {side} is never reused: {_join(own)}."


def _join(reasons: Sequence[str]) -> str:
    return "; ".join(_cut(reason, _MAX_REASON_CHARS) for reason in reasons[:MAX_NAMED])


def field_reasons(found: Iterable[FieldDifference], graph: str) -> Iterator[str]:
    """Yield a sentence for each field of the key that differs."""
    groups: dict[str, list[FieldDifference]] = {}
    for item in found:
        groups.setdefault(item.path.partition(".")[0], []).append(item)
    for name, items in groups.items():
        what = PART_NAMES.get(name, f"the field {name}")
        if len(items) == 1 and items[0].path == name and items[0].change != "changed":
            side = "second" if items[0].change == "added" else "first"
            yield f"Only the key of the {side} covers {what}."
            continue
        texts = [graph] if name == "graph" else [_describe(item, name) for item in items[:MAX_NAMED]]
        named = [text for text in texts if text]
        more = [f"{len(items) - MAX_NAMED} more"] if len(items) > MAX_NAMED else []
        verb = "differ" if name in _PLURAL else "differs"
        details = f": {'; '.join((*named, *more))}" if named else ""
        yield f"{what[:1].upper()}{what[1:]} {verb}{details}."


def _describe(item: FieldDifference, group: str) -> str:
    """Return what differs; empty if there are only digests to show."""
    name = _cut(item.path.removeprefix(group).removeprefix("."))
    if item.change != "changed":
        return f"{name} {item.change}"
    values = item.before, item.after
    if any(isinstance(value, str) and _DIGEST.fullmatch(value) for value in values):
        return name
    one, other = map(_value, values)
    is_long = max(len(one), len(other)) > _MAX_VALUE_CHARS
    if is_long and isinstance(item.before, list) and isinstance(item.after, list):
        return f"{name} {_entries(item.before, item.after)}".strip()
    if one == other:  # they differ where they are cut
        return name
    return f"{name} {one}, then {other}".strip()


def _entries(before: list[Any], after: list[Any]) -> str:
    """Return how many entries a list lost and gained."""
    added, removed = sum(item not in before for item in after), sum(item not in after for item in before)
    changes = [f"{count} {change}" for count, change in ((added, "added"), (removed, "removed")) if count]
    return ", ".join(changes) or "another order"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str, most: int = _MAX_VALUE_CHARS) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
