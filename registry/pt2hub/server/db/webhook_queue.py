"""The queue of webhooks. As with builds it only delivers: the tables are the truth, and a job may come twice or too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import procrastinate
from procrastinate.exceptions import ConnectorException
from sqlalchemy import text

from pt2hub.errors import DatabaseUnavailable
from pt2hub.server.db.job_consumer import JobConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy.orm import Session

_EVENT_QUEUE = "pt2hub.webhooks"
_SEND_QUEUE = "pt2hub.webhooks.sending"
_EVENT_TASK = "pt2hub.webhooks.event"
_SEND_TASK = "pt2hub.webhooks.send"
_POLL_INTERVAL_S = 5.0
_EVENT_SLOTS = 1
"""Events that a process dispatches at once; never taken by receivers, which may hang."""
_SEND_SLOTS = 8
"""Receivers that a process sends to at once; their threads mostly wait."""
# Never opened: jobs are added through the session's own connection.
_APP = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())
_SWEEP = text("""
    DELETE FROM procrastinate_jobs
    WHERE queue_name IN (:events, :sending) AND (status NOT IN ('todo', 'doing') OR (status = 'doing' AND worker_id IS NULL))
""")


def announce_event(session: Session, event_id: str) -> None:
    """Wake a process that finds the receivers of an event, when the session's transaction commits."""
    _defer(session, _EVENT_QUEUE, _EVENT_TASK, event_id=event_id)


def announce_deliveries(session: Session, webhook_id: int) -> None:
    """Wake a process that sends a webhook's due deliveries, when the session's transaction commits."""
    _defer(session, _SEND_QUEUE, _SEND_TASK, webhook_id=webhook_id)


def sweep(session: Session) -> None:
    """Delete jobs whose handler raised or whose consumer is gone; the tables know what is still to be done."""
    session.execute(_SWEEP, {"events": _EVENT_QUEUE, "sending": _SEND_QUEUE})


def dispatching(database_url: str, dispatch: Callable[[str], object]) -> JobConsumer:
    """Return the consumer that finds the receivers of events."""

    def on_event(event_id: str) -> None:
        dispatch(event_id)

    return _consumer(database_url, _EVENT_QUEUE, {_EVENT_TASK: on_event}, slots=_EVENT_SLOTS)


def sending(database_url: str, send: Callable[[int], object]) -> JobConsumer:
    """Return the consumer that sends the due deliveries of webhooks."""

    def on_deliveries(webhook_id: int) -> None:
        send(webhook_id)

    return _consumer(database_url, _SEND_QUEUE, {_SEND_TASK: on_deliveries}, slots=_SEND_SLOTS)


def _consumer(
    database_url: str, queue: str, handlers: Mapping[str, Callable[..., None]], *, slots: int
) -> JobConsumer:
    return JobConsumer(
        database_url, queue=queue, handlers=handlers, concurrency=slots, poll_interval=_POLL_INTERVAL_S
    )


def _defer(session: Session, queue: str, task: str, **arguments: str | int) -> None:
    session.flush()
    connection = session.connection().connection.dbapi_connection
    try:
        _APP.configure_task(task, queue=queue, connection=connection).defer(**arguments)
    except ConnectorException as exc:
        raise DatabaseUnavailable("Cannot queue an event for webhooks") from exc
