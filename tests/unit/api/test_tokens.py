"""What tokens allow, for which models."""

from __future__ import annotations

import pytest

from pt2hub.domain.tokens import (
    DEFAULT_SCOPES,
    PATTERN,
    Actor,
    Permission,
    Scope,
    covers,
    intersect_patterns,
    within,
)


@pytest.mark.parametrize(
    ("pattern", "model", "covered"),
    [
        ("*", "vision/resnet18", True),
        ("vision/*", "vision/resnet18", True),
        ("vision/*", "vision-labs/resnet18", False),
        ("vision/*", "vision/a/b", False),
        ("*/resnet18", "nlp/resnet18", True),
        ("*/resnet18", "nlp/resnet180", False),
        ("vision/resnet*", "vision/resnet50", True),
        ("vision*/*", "vision-labs/x", True),
        ("vision/resnet18", "vision/resnet18", True),
        ("vision/resnet18", "vision", False),
        ("vision/*", "vision", False),
        ("vision/*", "", False),
    ],
)
def test_patterns_cover_models_without_reaching_across_the_slash(
    pattern: str, model: str, covered: bool
) -> None:
    assert covers(pattern, model) == covered


@pytest.mark.parametrize(
    "text", ["", "vision", "vision/", "/x", "a/b/c", "Vision/*", "vision/[a]", "a/b?", "**"]
)
def test_what_is_no_pattern_is_none(text: str) -> None:
    assert not PATTERN.fullmatch(text)


def test_admin_includes_every_scope_for_its_models_only() -> None:
    admin = Actor("ada", admin=True, scopes=frozenset(), patterns=("vision/*",))
    assert all(admin.may(scope, "vision/x") for scope in Scope)
    assert not any(admin.may(scope, "nlp/x") for scope in Scope)
    assert Scope.ADMIN not in DEFAULT_SCOPES
    assert not Actor("ci").may(Scope.ADMIN, "vision/x")


PARTS = ("*", "a", "b", "a*", "*b", "a*b", "*a*", "ab")


def test_what_two_patterns_share_is_covered_by_both_and_whole_where_one_contains_the_other() -> None:
    patterns = ["*", *(f"{team}/{name}" for team in PARTS for name in PARTS)]
    models = [f"{team}/{name}" for team in ("a", "b", "ab", "aab", "c") for name in ("a", "b", "ab", "ba")]
    for one in patterns:
        for other in patterns:
            shared = intersect_patterns(one, other)
            both = {model for model in models if covers(one, model) and covers(other, model)}
            found = {model for model in models if shared and covers(shared, model)}
            assert found <= both, (one, other, shared)
            if within(one, other) or within(other, one):
                assert found == both, (one, other, shared)
    assert intersect_patterns("*/resnet*", "vision/*") == "vision/resnet*"
    assert intersect_patterns("a*/x", "*b/x") is None


def test_a_permission_is_shared_scope_by_scope() -> None:
    publisher = Permission(frozenset({Scope.READ, Scope.PUBLISH}), ("vision/*",))
    everything = Permission(frozenset({Scope.ADMIN}), ("*",))
    assert publisher.intersect(everything) == everything.intersect(publisher)
    assert everything.intersect(publisher).scopes == {Scope.READ, Scope.PUBLISH}
    assert Scope.ADMIN in everything.intersect(everything).scopes
    assert publisher.intersect(Permission(frozenset({Scope.PROMOTE}), ("*",))).scopes == {Scope.READ}
