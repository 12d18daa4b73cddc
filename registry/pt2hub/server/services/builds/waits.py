"""Wait reasons of queued builds, with suggestions for misspelled targets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.server.db.stores.operations.workers import WorkerStore
from pt2hub.server.services.suggestions import suggest_words
from pt2hub.wire.responses import WaitReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.wire.responses import BuildView


def explain_waits(session: Session, views: Sequence[BuildView]) -> list[BuildView]:
    """Return the same builds, with suggestions where no worker ever offered the target."""
    if not any(_is_unknown(view) for view in views):
        return list(views)
    known = WorkerStore(session).list_known()
    return [
        replace(view, wait=never_offered(view.target, known)) if _is_unknown(view) else view for view in views
    ]


def never_offered(target: str, known: Sequence[str]) -> WaitReason:
    """Return the wait reason for a target that no worker ever offered, with suggestions."""
    return WaitReason("never_offered", suggestions=tuple(suggest_words(target, known)))


def _is_unknown(view: BuildView) -> bool:
    return view.wait is not None and view.wait.code == "never_offered"
