"""Names of tensors inside nested arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pt2hub.domain.publishing.paths import ContradictionError, nest, parse, split

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True)
PARTS = st.recursive(
    st.integers(),
    lambda inner: (
        st.dictionaries(KEYS, inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, PARTS, max_size=4))
def test_what_is_split_is_put_together_again_with_every_order_kept(arguments: dict[str, Any]) -> None:
    parts = {path: part for name, value in arguments.items() for path, part in split(name, value)}
    assert repr(nest(parts)) == repr(arguments)
    assert {parse(path)[0] for path in parts} == set(arguments)


@given(st.dictionaries(NAMES, PARTS, min_size=1, max_size=3), st.randoms())
def test_the_order_of_the_parts_of_lists_and_tuples_does_not_matter(
    arguments: dict[str, Any], chance: Any
) -> None:
    parts = [item for name, value in arguments.items() for item in split(name, value)]
    chance.shuffle(parts)
    assert nest(dict(parts)) == arguments


def test_the_steps_say_what_is_stepped_into() -> None:
    name = "batch.pixel-values[0](12)"
    root, steps = parse(name)
    assert root == "batch"
    assert [(step.container, step.key) for step in steps] == [
        ("dict", "pixel-values"),
        ("list", 0),
        ("tuple", 12),
    ]
    assert root + "".join(map(str, steps)) == name


@pytest.mark.parametrize(
    "name", ["", "0", "x.", "x.0", "x[]", "x[-1]", "x[00]", "x[1000]", "x(1]", "x y", "x[\u0660]"]
)
def test_other_forms_are_no_names(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid argument name"):
        parse(name)


@pytest.mark.parametrize(
    ("names", "fault", "problem"),
    [
        (["x", "x.a"], "x.a", "contradicts an earlier name"),
        (["x.a", "x"], "x", "is given twice or contradicts an earlier name"),
        (["x.a", "x[0]"], "x[0]", "contradicts an earlier name"),
        (["x[0]", "x(1)"], "x(1)", "contradicts an earlier name"),
        (["x.a[0].b", "x.a[0](0)"], "x.a[0](0)", "contradicts an earlier name"),
        (["x[1]"], "x", "has no index 0"),
        (["y", "x.a(0)", "x.a(2)"], "x.a", "has no index 1"),
        (["x(0)[1]"], "x(0)", "has no index 0"),
    ],
)
def test_names_that_cannot_stand_in_one_call_are_refused_with_the_one_at_fault(
    names: list[str], fault: str, problem: str
) -> None:
    with pytest.raises(ContradictionError) as caught:
        nest(dict.fromkeys(names))
    assert caught.value.name == fault
    assert str(caught.value).startswith(f"{fault} {problem}")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a b": 1}, r"x has the invalid key 'a b'"),
        ({1: 2}, "x has the invalid key 1"),
        ([{}], r"x\[0\] is empty"),
        ({"a": ()}, "x.a is empty"),
    ],
)
def test_what_no_name_leads_to_cannot_be_split(value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        list(split("x", value))


def test_only_plain_containers_are_stepped_into() -> None:
    class Result(dict[str, int]):
        pass

    result = Result(a=1)
    assert list(split("x", [result])) == [("x[0]", result)]
