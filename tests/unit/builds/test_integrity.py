"""A model that replaces pt2hub's own functions is told so."""

from __future__ import annotations

import re

import pytest

from pt2hub.domain import digests
from pt2hub.domain.targets import Target
from pt2hub.errors import ModelInterferes
from pt2hub_workers.inside.builds.integrity import OwnFunctions


def replacement() -> None:
    """Stands in another function's place."""


def test_where_nothing_was_replaced_nothing_is_said() -> None:
    own = OwnFunctions()
    assert own.find_replaced() == []
    own.check("build")


def test_a_replaced_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OwnFunctions()
    monkeypatch.setattr(digests, "digest_bytes", replacement)
    with pytest.raises(ModelInterferes, match=re.escape("pt2hub.domain.digests.digest_bytes")) as refused:
        own.check("build")
    assert refused.value.hint


def test_methods_properties_and_removed_names_count(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OwnFunctions()
    monkeypatch.setattr(Target, "name", "mine")
    monkeypatch.setattr(Target, "__str__", lambda _: "mine")
    monkeypatch.delattr(digests, "digest_file")
    assert own.find_replaced() == [
        "pt2hub.domain.digests.digest_file",
        "pt2hub.domain.targets.Target.__str__",
        "pt2hub.domain.targets.Target.name",
    ]


def test_a_function_whose_code_was_exchanged_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OwnFunctions()
    monkeypatch.setattr(digests.digest_bytes, "__code__", replacement.__code__)
    assert "pt2hub.domain.digests.digest_bytes" in own.find_replaced(), "and wherever else it was imported"


def test_many_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OwnFunctions()
    names = [name for name, value in vars(digests).items() if callable(value) and name.startswith("digest")]
    monkeypatch.setattr(digests, "canonical_json", replacement)
    for name in ("name", "cpu", "exists", "__str__", "__init__", "__eq__"):
        monkeypatch.setattr(Target, name, replacement, raising=False)
    assert names
    with pytest.raises(ModelInterferes, match=r" and \d more"):
        own.check("build")
