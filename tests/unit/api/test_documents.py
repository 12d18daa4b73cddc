from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pt2hub.errors import InvalidInput
from pt2hub.wire.documents import JSON_TYPE, parse_document

SPEC = """
model: vision/resnet18
source: {factory: "torchvision.models:resnet18", kwargs: {}, seed: 0}
weights: null
inputs:
  - {name: x, shape: [batch, 3, 224, 224], dtype: float32, generate: {normal: {}}}
checks: {tolerance: 1.0e-3}
"""


def test_yaml_and_json_of_the_same_document_are_the_same_value() -> None:
    from_yaml = parse_document(SPEC.encode())
    assert from_yaml["checks"] == {"tolerance": 0.001}
    assert parse_document(json.dumps(from_yaml).encode(), content_type=JSON_TYPE) == from_yaml
    assert parse_document(json.dumps(from_yaml).encode()) == from_yaml


@pytest.mark.parametrize(
    ("body", "content_type", "line", "column"),
    [
        (b'{"model": "a/b",\n "inputs": [}', JSON_TYPE, 2, 13),
        (b"model: a/b\ninputs: [1, 2\nweights: 3", "application/yaml", 3, 8),
        (b"model: a/b\nmodel: c/d", "application/yaml", 2, 1),
        (b"a: &x [1]\nb: *x", "application/yaml", 2, 4),
        (b"a: !!python/object:os.system {}", "application/yaml", 1, 4),
        (b"a: 1\nb: 'never closed\nc: 2\n", "application/yaml", 2, 4),
        (b"a: 1\nb: {c: 1\n\n", "application/yaml", 2, 4),
        (b"a: 1\nb: \x01", "application/yaml", 2, 4),
    ],
)
def test_a_syntax_error_names_line_and_column(body: bytes, content_type: str, line: int, column: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_document(body, content_type=content_type)
    assert caught.value.context == {"line": line, "column": column}
    assert f"line {line}, column {column}" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"a: {b: [1, .nan]}", "a.b[1]"),
        (b"a: .inf", "a"),
        (b"a: [0x" + b"f" * 5000 + b"]", "a[0]"),
        (b"a: 2026-11-21", "a"),
        (b"1: x", "1"),
        (b'{"a": "\\u0000"}', "a"),
        (b'{"a": "\\ud800"}', "a"),
        (b'{"a": 1e999}', "a"),
        (b"[1, 2]", "document"),
        (b"", "document"),
        (b"\xff\xfe", "document"),
        (b'{"a": 1, "a": 2}', "document"),
        (b"a: 2026-99-99", "document"),
        (b"[" * 100_000, "document"),
        (b'{"a": ' + b"9" * 5000 + b"}", "document"),
        (b"a: \x01", "document"),
        (b"a: !!int ''", "document"),
        (b"a: !!bool maybe", "document"),
        (b"a: !!timestamp soon", "document"),
    ],
)
@pytest.mark.parametrize("content_type", [JSON_TYPE, "application/yaml"])
def test_values_that_no_database_could_keep_are_refused_at_the_door(
    body: bytes, where: str, content_type: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_document(body, content_type=content_type)
    if content_type != JSON_TYPE:
        assert (caught.value.where or "").startswith(where)


def test_a_small_file_cannot_grow_without_bound() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    began = time.monotonic()
    with pytest.raises(InvalidInput, match="aliases"):
        parse_document(bomb.encode())
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 0.001), ("1.0e-3", 0.001), ("-2E+5", -2e5), ("1e3x", "1e3x")]
)
def test_numbers_in_yaml_are_numbers_as_in_json(text: str, value: object) -> None:
    assert parse_document(f"a: {text}".encode()) == {"a": value}


TEXT = st.text(max_size=8).filter(lambda text: "\0" not in text)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_any_json_object_survives(value: dict[str, object]) -> None:
    assert parse_document(json.dumps(value).encode(), content_type=JSON_TYPE) == value


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_are_answered_with_a_value_or_an_error(body: bytes) -> None:
    for content_type in (JSON_TYPE, "application/yaml"):
        with contextlib.suppress(InvalidInput):
            assert isinstance(parse_document(body, content_type=content_type), dict)
