"""A rule by which CI jobs of a provider are trusted."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.tokens import Actor, Scope

if TYPE_CHECKING:
    from support.registry import Registry


def trust(registry: Registry) -> None:
    """Adds a trust rule."""
    registry.services.trust.add(
        "ci",
        issuer="https://gitlab.example",
        audience="pt2hub",
        claims={"project_path": "team/*"},
        scopes=[Scope.PUBLISH],
        patterns=["vision/*"],
        lasting=timedelta(minutes=10),
        by=Actor("ada", admin=True),
    )
