"""Page of targets and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from pt2hub.domain.targets import parse_target
from pt2hub.rendering.sheets import isolation_text, skew
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.builds.list_answers import compose_target_answer, urgency
from pt2hub.server.pages.choices import check_choice
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response

    from pt2hub.wire.responses import TargetView

_MAX_WORKERS = 200
"""Workers shown; the target filter finds the others."""
_MAX_CHARS = 200
"""Characters of a part of a name to filter by."""
_ORDERS = ("", "name", "workers", "running", "queued")


@routes.get("/targets")
def targets() -> Response:
    """List targets with their queues and live workers; with `q` those that have it in their names.

    With `gone=1` stopped workers are listed too.
    """
    target, gone = request.args.get("target") or None, request.args.get("gone") == "1"
    if target:
        parse_target(target)
    order, wanted = _order(), request.args.get("q", "").strip()[:_MAX_CHARS]
    services = container().workers
    known = services.targets()
    found = services.workers(gone=gone, target=target, limit=_MAX_WORKERS + 1).workers
    shown = found[:_MAX_WORKERS]
    return page(
        "targets.html",
        section="targets",
        answer=compose_target_answer(known),
        names=[item.name for item in known],
        wanted=wanted,
        targets=_sorted([item for item in known if wanted.lower() in item.name.lower()], order),
        order=order,
        workers=shown,
        machines=services.machines([worker.environment for worker in shown if worker.environment]),
        more=len(found) > len(shown),
        target=target,
        gone=gone,
        isolation_text=isolation_text,
        skew=skew,
    )


def _order() -> str:
    order = request.args.get("sort", "")
    check_choice(order, _ORDERS, "sort")
    return order


def _sorted(found: Sequence[TargetView], order: str) -> list[TargetView]:
    """Return targets by name, or the largest number first; without an order, the most urgent first."""
    if not order:
        return sorted(found, key=urgency)
    if order == "name":
        return list(found)
    attribute = "live_workers" if order == "workers" else order
    return sorted(found, key=lambda item: -int(getattr(item, attribute)))
