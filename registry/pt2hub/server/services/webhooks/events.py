"""Events for webhooks, written in the transaction of what happened (an outbox).

Where no webhook wants such an event, this is one short query. Receivers are found and called later, by other processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import BuildKind
from pt2hub.domain.webhooks import EventType
from pt2hub.server.db import webhook_queue
from pt2hub.server.db.stores.webhooks.outbox import OutboxStore
from pt2hub.server.services.access import audit_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal
    from pt2hub.server.db.stores.builds.builds import HeldBuild
    from pt2hub.server.db.stores.performance.changes import ExaminedSeries, FlaggedChange

VERSION_OUTCOMES = (
    EventType.VERSION_READY,
    EventType.VERSION_PARTIAL,
    EventType.VERSION_FAILED,
    EventType.VERSION_CANCELLED,
)
"""Events that are derived from the end of a version's last build."""
_MAX_CHARS = 2000
_SHOWN_OF_ERRORS = ("code", "message", "hint")


def record(
    session: Session,
    kind: EventType,
    *,
    model: str,
    version: int | None,
    by: Principal,
    **data: Any,
) -> None:
    """Record an event.

    Args:
        data: What it is about.
    """
    outbox = OutboxStore(session)
    if outbox.is_watched([kind]):
        _add(session, kind, model=model, version=version, by=by, data=data)


def record_build_end(
    session: Session, build: HeldBuild, kind: EventType, error: Mapping[str, Any] | None = None
) -> None:
    """Record the end of a build; measuring jobs have no events. The build's row already says how it ended.

    Args:
        error: Fields of the error.
    """
    outbox = OutboxStore(session)
    if build.kind is not BuildKind.BUILD or not outbox.is_watched([kind, *VERSION_OUTCOMES]):
        return
    session.flush()
    ended = outbox.ended_build(build.id)
    data: dict[str, Any] = {"build": build.id, "target": ended.target, "attempt": ended.attempt}
    if error is not None:
        data["error"] = {name: str(error.get(name) or "")[:_MAX_CHARS] for name in _SHOWN_OF_ERRORS}
    _add(session, kind, model=ended.model, version=ended.number, by=ended.cancelled_by or ended.by, data=data)


def record_regressions(session: Session, found: Sequence[tuple[ExaminedSeries, FlaggedChange]]) -> None:
    """Record regressions that were not flagged before."""
    outbox = OutboxStore(session)
    if not found or not outbox.is_watched([EventType.REGRESSION_FOUND]):
        return
    names = outbox.model_names(change.model_id for _, change in found)
    for series, change in found:
        data = {
            "kind": change.kind,
            "target": series.target,
            "metric": series.metric,
            "batch": series.batch or None,
            "before": change.before,
            "ratio": change.ratio,
            "low": change.low,
            "high": change.high,
        }
        _add(
            session,
            EventType.REGRESSION_FOUND,
            model=names[change.model_id],
            version=change.number,
            by=None,
            data=data,
        )


def _add(  # the same fields as an event
    session: Session,
    kind: EventType,
    *,
    model: str,
    version: int | None,
    by: Principal | None,
    data: dict[str, Any],
) -> None:
    shown = audit_log.redact_tokens(data)
    event_id = OutboxStore(session).add(kind, model=model, version=version, by=by, data=shown)
    assert event_id is not None, "an event without a key is always added"
    webhook_queue.announce_event(session, event_id)
