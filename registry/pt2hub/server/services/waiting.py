"""Why builds wait: names of targets that a misspelt one may have meant."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.server.db.stores.build_views import NEVER_OFFERED
from pt2hub.server.db.stores.workers import WorkerStore
from pt2hub.server.services.near import near_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.wire.shapes import BuildView


def explained(session: Session, views: Sequence[BuildView]) -> list[BuildView]:
    """The same builds; those that wait for a target that no worker ever offered name the nearest known ones."""
    if all(view.note != NEVER_OFFERED for view in views):
        return list(views)
    known = WorkerStore(session).known()
    return [
        replace(view, note=never_offered(view.target, known)) if view.note == NEVER_OFFERED else view
        for view in views
    ]


def never_offered(target: str, known: Sequence[str]) -> str:
    """Says that no worker ever offered a target, and which known ones may be meant."""
    near = near_words(target, known)
    return f"{NEVER_OFFERED}; workers know {', '.join(near)}" if near else NEVER_OFFERED
