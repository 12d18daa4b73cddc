"""Retention policies on the pages of models and teams, and the page of what they would delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import request

from pt2hub.domain.principals import Principal
from pt2hub.domain.tokens import Scope
from pt2hub.errors import InvalidInput
from pt2hub.rendering.quantities import format_bytes, format_count
from pt2hub.rendering.retention import describe_kept, describe_origin
from pt2hub.server.api.context import container
from pt2hub.server.api.visitors import visitor
from pt2hub.server.pages import sessions
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page
from pt2hub.server.services.retention.policies import pattern_of

if TYPE_CHECKING:
    from flask import Response

    from pt2hub.wire.retention import RetentionPreview, RetentionView

_MAX_LISTED = 200
"""Versions of each list; `pt2hub retention preview` prints all."""


@dataclass(frozen=True, slots=True)
class RetentionLine:
    """The policy that holds for a model or a team.

    Attributes:
        scope: `team/name` or `team`.
        kept: What it keeps, in words.
        origin: On what it is set; empty where that is the scope itself.
        by: Who set it, at `at`.
        is_previewed: Whether the visitor may see what it would delete.
    """

    scope: str
    kept: str
    origin: str
    by: Principal | None
    at: str | None
    is_previewed: bool


@routes.get("/retention")
def retention() -> Response:
    """Show what the retention policies of a model or a team would delete now; nothing is deleted."""
    scope = request.args.get("scope", "").strip()
    if not scope:
        raise InvalidInput(
            "scope is required", where="scope", hint="Write a model or a team: /retention?scope=vision/vit."
        )
    found = container().retention.preview(scope, by=sessions.actor())
    return page(
        "retention.html",
        section="models",
        scope=scope,
        answer=compose_retention_answer(found),
        policies=[describe_policy(view) for view in found.policies[:_MAX_LISTED]],
        goes=[name.rsplit("@", 1) for name in found.goes[:_MAX_LISTED]],
        kept=found.kept[:_MAX_LISTED],
        notes=found.notes[:_MAX_LISTED],
        unlisted=max(map(len, (found.policies, found.goes, found.kept, found.notes))) > _MAX_LISTED,
    )


def describe_retention(scope: str) -> RetentionLine:
    """Return the policy that holds for a model or a team, as its page shows it."""
    return describe_policy(container().retention.policy(scope))


def describe_policy(view: RetentionView) -> RetentionLine:
    """Return a policy as pages show it."""
    reader = visitor()
    return RetentionLine(
        view.scope,
        describe_kept(view),
        describe_origin(view),
        view.by,
        view.at,
        is_previewed=reader is not None and reader.may(Scope.ADMIN, pattern_of(view.scope)),
    )


def compose_retention_answer(found: RetentionPreview) -> str:
    """Return how much the next run deletes."""
    if not found.goes:
        return "Nothing would be deleted now."
    verb = "goes" if len(found.goes) == 1 else "go"
    return f"{format_count(len(found.goes), 'version')} {verb} at the next run, which frees {format_bytes(found.freed_bytes)}."
