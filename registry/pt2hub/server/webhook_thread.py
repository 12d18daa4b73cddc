"""The thread in every API process that sends webhooks; a worker's role has no rights for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from pt2hub.server.db.webhook_queue import WebhookConsumer

if TYPE_CHECKING:
    from pt2hub.server.container import Container

_PATIENCE_SECONDS = 3.0
_RESTART_SECONDS = 5.0
_log = structlog.get_logger(__name__)


class WebhookThread:
    """Dispatches events and sends deliveries until it is stopped."""

    def __init__(self, container: Container) -> None:
        self._consumer = WebhookConsumer(
            container.database_url,
            dispatch=container.webhook_dispatcher.dispatch,
            send=container.webhook_sender.send,
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="webhooks")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; an attempt that takes too long is cut off, and made again by another process."""
        self._stopped.set()
        self._consumer.stop()
        self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._consumer.run()
            except Exception as error:  # noqa: BLE001  # without the thread nothing is ever sent
                _log.error(
                    "sending webhooks failed", error=f"{type(error).__name__}: {error}", exc_info=error
                )
                self._stopped.wait(_RESTART_SECONDS)
