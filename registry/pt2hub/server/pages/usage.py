"""Page of what teams use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from pt2hub.domain.names import MAX_NAME
from pt2hub.rendering.quantities import format_bytes, format_count
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.choices import check_choice
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response

    from pt2hub.wire.usage import TeamUsage, UsageView

_ORDERS = {
    "stored": "stored_bytes",
    "models": "models",
    "versions": "versions",
    "artifacts": "artifacts",
    "builds": "builds",
}
"""Orders besides the name, with the attribute whose largest value comes first."""
_MAX_NAMED = 3
"""Teams at a limit that are named."""


@routes.get("/usage")
def usage() -> Response:
    """List teams with their versions, artifacts, stored bytes and unfinished builds, and the limits of each.

    With `q`, only teams that have it in their names.
    """
    team, order = request.args.get("team") or None, request.args.get("sort", "")
    wanted = request.args.get("q", "").strip()[:MAX_NAME]
    check_choice(order, ("", *_ORDERS), "sort")
    view = container().usage.view(team)
    return page(
        "usage.html",
        section="usage",
        view=view,
        team=team,
        answer=compose_usage_answer(view),
        order=order,
        wanted=wanted,
        teams=_sorted([item for item in view.teams if wanted.lower() in item.team], order),
    )


def compose_usage_answer(view: UsageView) -> str:
    """Return how much is stored, who stores most, and which teams are at a limit."""
    if not view.teams:
        return "Nothing is stored yet."
    total = sum(item.stored_bytes for item in view.teams)
    most = max(view.teams, key=lambda item: item.stored_bytes)
    full = [item.team for item in view.teams if is_at_limit(item, view)]
    if len(view.teams) == 1:
        head = f"{most.team} stores {format_bytes(total)}"
    else:
        teams = format_count(len(view.teams), "team")
        head = f"{teams} store {format_bytes(total)}; {most.team} stores most ({format_bytes(most.stored_bytes)})"
    if not full:
        return f"{head}."
    others = " and others" if len(full) > _MAX_NAMED else ""
    return f"{head}. {', '.join(full[:_MAX_NAMED])}{others} reached a limit."


def is_at_limit(item: TeamUsage, view: UsageView) -> bool:
    """Return whether a team reached one of its limits."""
    return bool(
        (view.max_bytes and item.stored_bytes >= view.max_bytes)
        or (view.max_builds and item.builds >= view.max_builds)
    )


def _sorted(teams: Sequence[TeamUsage], order: str) -> list[TeamUsage]:
    if not order:
        return list(teams)
    return sorted(teams, key=lambda item: -int(getattr(item, _ORDERS[order])))
