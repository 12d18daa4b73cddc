"""Targets and workers, and what each is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from pt2hub.domain.targets import parse_target
from pt2hub.rendering.printing import confined, skew
from pt2hub.server.api.context import container
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes

if TYPE_CHECKING:
    from flask import Response

_MOST_WORKERS = 200
"""Workers that are shown; those of one target can be asked for."""


@routes.get("/targets")
def targets() -> Response:
    """Every target with its queue, and the workers: those that live, on demand also those that went."""
    target, gone = request.args.get("target") or None, request.args.get("gone") == "1"
    if target:
        parse_target(target)
    services = container().workers
    found = services.workers(gone=gone, target=target, limit=_MOST_WORKERS + 1).workers
    shown = found[:_MOST_WORKERS]
    return page(
        "targets.html",
        room="targets",
        targets=services.targets(),
        workers=shown,
        machines=services.machines([worker.environment for worker in shown if worker.environment]),
        more=len(found) > len(shown),
        target=target,
        gone=gone,
        confined=confined,
        skew=skew,
    )
