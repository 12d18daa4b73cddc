"""Page of targets and workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from pt2hub.domain.targets import parse_target
from pt2hub.rendering.sheets import isolation_text, skew
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response

_MAX_WORKERS = 200
"""Workers shown; the target filter finds the others."""


@routes.get("/targets")
def targets() -> Response:
    """List targets with their queues and live workers; with `gone=1` also stopped workers."""
    target, gone = request.args.get("target") or None, request.args.get("gone") == "1"
    if target:
        parse_target(target)
    services = container().workers
    found = services.workers(gone=gone, target=target, limit=_MAX_WORKERS + 1).workers
    shown = found[:_MAX_WORKERS]
    return page(
        "targets.html",
        section="targets",
        targets=services.targets(),
        workers=shown,
        machines=services.machines([worker.environment for worker in shown if worker.environment]),
        more=len(found) > len(shown),
        target=target,
        gone=gone,
        isolation_text=isolation_text,
        skew=skew,
    )
