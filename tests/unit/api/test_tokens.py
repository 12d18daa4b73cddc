"""What tokens allow, for which models."""

from __future__ import annotations

import pytest

from pt2hub.domain.tokens import DEFAULT_SCOPES, PATTERN, Actor, Scope, covers


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
