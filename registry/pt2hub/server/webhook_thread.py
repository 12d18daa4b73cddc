"""The threads in every API process that send webhooks; a worker's role has no rights for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from pt2hub.server.db import webhook_queue
from pt2hub.server.services.webhooks.fair_sending import FairSending

if TYPE_CHECKING:
    from pt2hub.server.container import Container
    from pt2hub.server.db.job_consumer import JobConsumer

_PATIENCE_SECONDS = 3.0
_RESTART_SECONDS = 5.0
_log = structlog.get_logger(__name__)


class WebhookThread:
    """Dispatches events in one thread and sends deliveries in another until it is stopped."""

    def __init__(self, container: Container) -> None:
        sender = container.webhook_sender
        self._sending = FairSending(sender.send, sender.team)
        self._consumers = (
            webhook_queue.dispatching(container.database_url, container.webhook_dispatcher.dispatch),
            webhook_queue.sending(container.database_url, self._sending.send),
        )
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(consumer,), daemon=True, name="webhooks")
            for consumer in self._consumers
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; an attempt that takes too long is cut off, and made again by another process."""
        self._stopped.set()
        self._sending.stop()
        for consumer in self._consumers:
            consumer.stop()
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)

    def _run(self, consumer: JobConsumer) -> None:
        while not self._stopped.is_set():
            try:
                consumer.run()
            except Exception as error:  # noqa: BLE001  # without the thread nothing is ever sent
                _log.error(
                    "sending webhooks failed", error=f"{type(error).__name__}: {error}", exc_info=error
                )
                self._stopped.wait(_RESTART_SECONDS)
