"""When equal code means equal kernels: the program keys of both sides decide."""

from __future__ import annotations

from typing import Any

import pytest

from pt2hub.domain.artifacts import KEY_SCHEMA, ProgramKey
from pt2hub.domain.digests import digest_bytes

OPERATOR = {"operators": {"mine.act.default": "sha256:body"}}
UNKNOWN = {"reuse": {"never": ["its body has no digest"]}}


def a_key(name: str, **fields: Any) -> ProgramKey:
    return ProgramKey(digest_bytes(name.encode()), {"schema": KEY_SCHEMA, **fields})


@pytest.mark.parametrize(
    ("one", "other", "bound"),
    [
        (a_key("a"), a_key("a"), True),
        (a_key("a"), a_key("b"), True),
        (a_key("a", **OPERATOR), a_key("a", **OPERATOR), True),
        (a_key("a", **OPERATOR), a_key("b", **OPERATOR), False),
        (a_key("a"), a_key("b", **OPERATOR), False),
        (a_key("a", **UNKNOWN), a_key("a", **UNKNOWN), False),
        (a_key("a"), a_key("a", schema=KEY_SCHEMA - 1), False),
    ],
)
def test_code_binds_its_kernels_where_the_keys_name_what_it_calls(
    one: ProgramKey, other: ProgramKey, *, bound: bool
) -> None:
    assert one.binds_kernels_with(other) is bound
    assert other.binds_kernels_with(one) is bound
